// Lines over time, drawn by uPlot in the page's own colours.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

const HEIGHT_PX = 180;

export interface Line {
  name: string;
  values: readonly (number | null)[];
}

/** `summary` is the chart in words, for who cannot see it. */
export function Chart(props: {
  title: string;
  summary: string;
  times: readonly number[];
  lines: readonly Line[];
}): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const names = props.lines.map((line) => line.name).join("|");

  useEffect(() => {
    const box = place.current;
    if (box === null) {
      return;
    }
    const draw = (): void => {
      plot.current?.destroy();
      plot.current = new uPlot(options(box, props.lines.map((line) => line.name)), data(props), box);
    };
    draw();
    const sized = new ResizeObserver(() => plot.current?.setSize({ width: box.clientWidth, height: HEIGHT_PX }));
    sized.observe(box);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return () => {
      sized.disconnect();
      scheme.removeEventListener("change", draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [names]);

  useEffect(() => {
    plot.current?.setData(data(props));
  }, [props.times, props.lines]);

  return (
    <figure class="chart" data-moments={props.times.length}>
      <figcaption>{props.title}</figcaption>
      <div ref={place} role="img" aria-label={`${props.title}. ${props.summary}`} />
    </figure>
  );
}

function data(props: { times: readonly number[]; lines: readonly Line[] }): uPlot.AlignedData {
  return [props.times.map((ms) => ms / 1000), ...props.lines.map((line) => [...line.values])];
}

function options(box: HTMLElement, names: readonly string[]): uPlot.Options {
  const style = getComputedStyle(box);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  const strokes = ["--line-1", "--line-2", "--line-3"].map(colour);
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width: box.clientWidth,
    height: HEIGHT_PX,
    cursor: { y: false, drag: { x: false, y: false } },
    legend: { live: false },
    scales: { y: { range: (_plot, _low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [axis, { ...axis, size: 56 }],
    series: [
      {},
      ...names.map((label, index) => ({
        label,
        stroke: strokes[index % strokes.length] ?? "",
        width: 2,
        points: { show: false },
        spanGaps: false,
      })),
    ],
  };
}
