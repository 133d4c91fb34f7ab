"""Distances on the globe by the haversine formula."""

from __future__ import annotations

import math

_RADIUS_KM = 6_371.0088
_KM_PER_MILE = 1.609344


def distance_between(
    latitude: float | None, longitude: float | None, point: tuple[float, float], *, is_in_miles: bool
) -> float | None:
    """Return the distance from a place to a point, both in degrees; None if the place is not known."""
    if latitude is None or longitude is None:
        return None
    here, there = math.radians(latitude), math.radians(point[0])
    north = math.sin((there - here) / 2) ** 2
    east = math.sin(math.radians(point[1] - longitude) / 2) ** 2
    chord = min(1.0, north + math.cos(here) * math.cos(there) * east)
    distance_km = 2 * _RADIUS_KM * math.asin(math.sqrt(chord))
    return distance_km / _KM_PER_MILE if is_in_miles else distance_km
