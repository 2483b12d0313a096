/**
 * A chart of lines over time (uPlot). Only this file imports uPlot; the pages load it when somebody
 * opens one with a chart.
 */
import 'uplot/dist/uPlot.min.css';
import { useComputedColorScheme } from '@mantine/core';
import { type KeyboardEvent, useEffect, useRef, useState } from 'react';
import UPlot from 'uplot';
import { defined } from '@berth/kit/defined';
import { Text } from './text.tsx';

export type ChartLine = {
  label: string;
  values: readonly (number | null)[];
  look: 'main' | 'limit' | 'warn';
};
type ChartProps = {
  label: string;
  /** Seconds since 1970. */
  at: readonly number[];
  lines: readonly ChartLine[];
  /** The time that is shown; parts without points stay empty. */
  from: number;
  to: number;
  format: (value: number) => string;
  /** Steps between the marks of the scale. */
  steps?: number[];
  /** The chart in words. */
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
 * The arrow keys move through the times, and screen readers say the values there. All charts of a
 * page show the same time.
 */
export function Chart({ label, at, lines, from, to, format, steps, summary }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | null>(null);
  const dark = useComputedColorScheme('light') === 'dark';
  const [index, setIndex] = useState<number | null>(null);
  const looks = lines.map((line) => `${line.label} ${line.look}`).join();

  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const style = getComputedStyle(document.documentElement);
    const color = (name: string): string => style.getPropertyValue(name).trim();
    const axis = {
      stroke: color('--quiet'),
      grid: { stroke: color('--line'), width: 1 },
      ticks: { stroke: color('--line'), width: 1 },
    };
    const made = new UPlot(
      {
        width: Math.max(200, element.clientWidth),
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
        hooks: { setCursor: [(self) => setIndex(self.cursor.idx ?? null)] },
      },
      [[...at], ...lines.map(({ values }) => [...values])],
      element,
    );
    plot.current = made;
    const resized = new ResizeObserver(([entry]) => {
      if (entry !== undefined && entry.contentRect.width > 0)
        made.setSize({ width: entry.contentRect.width, height: HEIGHT });
    });
    resized.observe(element);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
    // New values go into the same chart (below), so that the cursor stays.
  }, [dark, looks, format, steps]);
  useEffect(() => {
    plot.current?.batch(() => {
      plot.current?.setData([[...at], ...lines.map(({ values }) => [...values])], false);
      plot.current?.setScale('x', { min: from, max: to });
    });
  }, [at, lines, from, to, dark, looks, format, steps]);

  const known = (place: number): string => {
    const values = lines.flatMap(({ label, values }) => {
      const value = values[place];
      return value === null || value === undefined ? [] : [`${label} ${format(value)}`];
    });
    return `${timeText(at[place] ?? 0)}: ${values.length === 0 ? 'no value' : values.join(', ')}`;
  };
  const move = (event: KeyboardEvent): void => {
    const last = at.length - 1;
    const now = index ?? last + 1;
    const next = {
      ArrowLeft: now - 1,
      ArrowRight: now + 1,
      PageUp: now - 15,
      PageDown: now + 15,
      Home: 0,
      End: last,
    }[event.key];
    if (next === undefined || plot.current === null || last < 0) return;
    event.preventDefault();
    const place = Math.max(0, Math.min(last, next));
    plot.current.setCursor({ left: plot.current.valToPos(at[place] ?? 0, 'x'), top: 0 });
  };
  const here = index === null || index >= at.length ? null : index;
  return (
    <figure style={{ margin: 0 }}>
      <figcaption>
        <Text strong inline>
          {label}
        </Text>{' '}
        <Text tone="quiet" inline>
          {here === null ? summary : known(here)}
        </Text>
        {lines.length > 1 && (
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
        )}
      </figcaption>
      <div
        ref={box}
        className="chart"
        role="slider"
        tabIndex={0}
        aria-label={`${label}: time. ${summary}`}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, at.length - 1)}
        aria-valuenow={here ?? Math.max(0, at.length - 1)}
        aria-valuetext={here === null ? summary : known(here)}
        onKeyDown={move}
        onBlur={() => plot.current?.setCursor({ left: -10, top: -10 })}
        style={{ minHeight: HEIGHT, overflow: 'hidden' }}
      />
    </figure>
  );
}
