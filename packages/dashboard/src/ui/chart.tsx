/**
 * A line chart over time (uPlot). Only this file imports uPlot, and it is loaded with the first
 * page that shows a chart.
 */
import 'uplot/dist/uPlot.min.css';
import { useComputedColorScheme } from '@mantine/core';
import { type KeyboardEvent, type RefObject, useEffect, useRef, useState } from 'react';
import UPlot, { type AlignedData, type Options } from 'uplot';
import { defined } from '@berth/kit/defined';
import { Text } from './text.tsx';

export type ChartLine = {
  label: string;
  values: readonly (number | null)[];
  look: 'main' | 'limit' | 'warn';
};
type ChartProps = {
  label: string;
  /** Times of the values, in seconds since 1970. */
  at: readonly number[];
  lines: readonly ChartLine[];
  /** Start of the displayed time range; parts without points stay empty. */
  from: number;
  to: number;
  format: (value: number) => string;
  /** Allowed distances between the marks of the scale. */
  steps?: number[];
  /** A text that describes the chart. */
  summary: string;
};

const HEIGHT = 150;
const SCALE_WIDTH = 84;
const COLORS = { main: '--busy', limit: '--bad', warn: '--warn' } as const;
const DASHES = { main: [], limit: [6, 4], warn: [2, 3] };
const clock = new Intl.DateTimeFormat('en-CA', {
  hour: '2-digit',
  minute: '2-digit',
  hourCycle: 'h23',
});
const day = new Intl.DateTimeFormat('en-CA', { month: '2-digit', day: '2-digit' });
const DAY_S = 86_400;
const timeText = (at: number): string => `${day.format(at * 1_000)} ${clock.format(at * 1_000)}`;

/**
 * A chart with keyboard control: the arrow keys move through the times, and screen readers say the
 * values. All charts on a page show the same time.
 */
export function Chart(props: ChartProps) {
  const { label, at, lines, summary } = props;
  const box = useRef<HTMLDivElement>(null);
  /** Index of the point under the cursor; null if there is none. */
  const [index, setIndex] = useState<number | null>(null);
  const plot = usePlot(box, props, setIndex);
  const moveCursor = (event: KeyboardEvent): void => {
    const next = nextIndex(event.key, index, at.length);
    if (next === null || plot.current === null) return;
    event.preventDefault();
    plot.current.setCursor({ left: plot.current.valToPos(at[next] ?? 0, 'x'), top: 0 });
  };
  const point = index === null || index >= at.length ? null : index;
  const text = point === null ? summary : pointText(props, point);
  return (
    <figure style={{ margin: 0 }}>
      <figcaption>
        <Text strong inline>
          {label}
        </Text>{' '}
        <Text tone="quiet" inline>
          {text}
        </Text>
        {lines.length > 1 && <ChartKey lines={lines} />}
      </figcaption>
      <div
        ref={box}
        className="chart"
        role="slider"
        tabIndex={0}
        aria-label={`${label}: time. ${summary}`}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, at.length - 1)}
        aria-valuenow={point ?? Math.max(0, at.length - 1)}
        aria-valuetext={text}
        onKeyDown={moveCursor}
        onBlur={() => plot.current?.setCursor({ left: -10, top: -10 })}
        style={{ minHeight: HEIGHT, overflow: 'hidden' }}
      />
    </figure>
  );
}

/**
 * Draws the lines into `box`. New values keep the plot and its cursor; a change of labels, colors
 * or scale creates a new plot.
 */
function usePlot(
  box: RefObject<HTMLDivElement | null>,
  { at, lines, from, to, format, steps }: ChartProps,
  onCursor: (index: number | null) => void,
): RefObject<UPlot | null> {
  const plot = useRef<UPlot | null>(null);
  const isDark = useComputedColorScheme('light') === 'dark';
  const looks = lines.map((line) => `${line.label} ${line.look}`).join();
  const data = (): AlignedData => [[...at], ...lines.map(({ values }) => [...values])];
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const options = plotOptions(element.clientWidth, lines, format, steps, onCursor);
    const created = new UPlot(options, data(), element);
    plot.current = created;
    const resizes = new ResizeObserver(([entry]) => {
      if (entry !== undefined && entry.contentRect.width > 0)
        created.setSize({ width: entry.contentRect.width, height: HEIGHT });
    });
    resizes.observe(element);
    return () => {
      resizes.disconnect();
      created.destroy();
      plot.current = null;
    };
  }, [isDark, looks, format, steps]);
  useEffect(() => {
    plot.current?.batch(() => {
      plot.current?.setData(data(), false);
      plot.current?.setScale('x', { min: from, max: to });
    });
  }, [at, lines, from, to, isDark, looks, format, steps]);
  return plot;
}

function plotOptions(
  width: number,
  lines: readonly ChartLine[],
  format: (value: number) => string,
  steps: number[] | undefined,
  onCursor: (index: number | null) => void,
): Options {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string): string => style.getPropertyValue(name).trim();
  const axis = {
    stroke: color('--quiet'),
    grid: { stroke: color('--line'), width: 1 },
    ticks: { stroke: color('--line'), width: 1 },
  };
  return {
    width: Math.max(200, width),
    height: HEIGHT,
    legend: { show: false },
    cursor: {
      drag: { x: false, y: false },
      y: false,
      sync: { key: 'berth' },
      points: { size: 8 },
    },
    scales: {
      x: { time: true },
      y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] },
    },
    axes: [
      {
        ...axis,
        values: (_plot, splits, _axis, _space, step) =>
          splits.map((split) => (step >= DAY_S ? day : clock).format(split * 1_000)),
      },
      {
        ...axis,
        size: SCALE_WIDTH,
        space: 26,
        values: (_plot, splits) => splits.map(format),
        ...defined({ incrs: steps }),
      },
    ],
    series: [
      {},
      ...lines.map(({ label, look }) => ({
        label,
        stroke: color(COLORS[look]),
        width: 1.5,
        dash: DASHES[look],
        ...defined({ fill: look === 'main' ? `${color(COLORS.main)}22` : undefined }),
      })),
    ],
    hooks: { setCursor: [(self) => onCursor(self.cursor.idx ?? null)] },
  };
}

/** Returns the time of a point and its values as text. */
function pointText({ at, lines, format }: ChartProps, index: number): string {
  const values = lines.flatMap(({ label, values: ofLine }) => {
    const value = ofLine[index];
    return value === null || value === undefined ? [] : [`${label} ${format(value)}`];
  });
  return `${timeText(at[index] ?? 0)}: ${values.length === 0 ? 'no value' : values.join(', ')}`;
}

/** Returns the index to which a key moves the cursor; null if the key moves nothing. */
function nextIndex(key: string, index: number | null, count: number): number | null {
  const last = count - 1;
  const current = index ?? last + 1;
  const next = {
    ArrowLeft: current - 1,
    ArrowRight: current + 1,
    PageUp: current - 15,
    PageDown: current + 15,
    Home: 0,
    End: last,
  }[key];
  return next === undefined || last < 0 ? null : Math.max(0, Math.min(last, next));
}

/** The legend of the chart. */
const ChartKey = ({ lines }: { lines: readonly ChartLine[] }) => (
  <ul className="chart-key">
    {lines.map(({ label, look }) => (
      <li key={label}>
        <svg viewBox="0 0 24 8" width="24" height="8" aria-hidden>
          <path
            d="M0 4H24"
            stroke={`var(${COLORS[look]})`}
            strokeWidth="2"
            strokeDasharray={DASHES[look].join(' ')}
          />
        </svg>
        {label}
      </li>
    ))}
  </ul>
);
