// The version of the APIs that the console speaks.

export const API_VERSION = "67.0";
export const DATA = `/services/data/v${API_VERSION}`;
export const OWN = "/services/tidewire/v1";
