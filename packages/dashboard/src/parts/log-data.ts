/** Reads logs as streams. Lines arrive in batches, and the page renders once per batch. */
import { defined } from '@berth/kit/defined';
import type { LogLine } from '@berth/wire/deployment';
import type { GoneNode, RuntimeLine } from '@berth/wire/runtime';
import { useEffect, useState } from 'react';
import { readSse } from '../api/sse.ts';
import type { Line } from './log-view.tsx';

export type LogData = { lines: readonly Line[]; notes: readonly string[]; ended: boolean };
const NONE: LogData = { lines: [], notes: [], ended: false };
/** Maximum number of lines in the page. The oldest lines are dropped, and a note says so. */
const MAX_LINES = 200_000;
const GATHER_MS = 100;
const SILENCE_MS = 45_000;
const PAUSE_MS = 1_000;

/** Follows the stream at `path` and reconnects after each lost connection. `path` null: no log. */
export function useLogStream(path: string | null): LogData {
  const [data, setData] = useState<LogData>(NONE);
  useEffect(() => {
    setData(NONE);
    if (path === null) return;
    const stop = new AbortController();
    const lines: Line[] = [];
    const notes = new Set<string>();
    let ended = false;
    let timer: ReturnType<typeof setTimeout> | null = null;
    const show = (): void => {
      timer = null;
      if (lines.length > MAX_LINES) {
        lines.splice(0, lines.length - MAX_LINES);
        notes.add(
          `Only the last ${MAX_LINES.toLocaleString('en')} lines are shown; download the whole ` +
            'log with the command line.',
        );
      }
      setData({ lines: [...lines], notes: [...notes], ended });
    };
    const later = (): void => void (timer ??= setTimeout(show, GATHER_MS));
    const take = (event: string, text: string, id: string | null): void => {
      const value: unknown = text === '' ? null : JSON.parse(text);
      if (event === 'end') ended = true;
      else if (event === 'lost') {
        notes.add('Lines may be missing where the log says so.');
        lines.push({
          key: `lost ${lines.length}`,
          at: lines.at(-1)?.at ?? new Date().toISOString(),
          stream: 'system',
          text: '── lines may be missing here ──',
          ...defined({ from: lines.at(-1)?.from }),
        });
      } else if (event === 'gone') notes.add((value as GoneNode).message);
      else if (isLine(value)) {
        const seq = 'seq' in value ? value.seq : (id ?? lines.length);
        const { at, stream, text } = value;
        lines.push({ key: String(seq), at, stream, text, ...defined({ from: instanceOf(value) }) });
      }
      later();
    };
    void (async () => {
      let after: string | null = null;
      while (!stop.signal.aborted && !ended) {
        try {
          const response: Response = await fetch(path, {
            headers: {
              accept: 'text/event-stream',
              ...defined({ 'last-event-id': after ?? undefined }),
            },
            signal: stop.signal,
          });
          if (!response.ok || response.body === null) {
            if (response.status < 500) return;
          } else
            for await (const frame of readSse(response.body, SILENCE_MS)) {
              if (frame.id !== null) after = frame.id;
              take(frame.event, frame.data, frame.id);
            }
        } catch {
          // The banner reports the outage; this stream continues after its last line.
        }
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    })();
    return () => {
      stop.abort();
      if (timer !== null) clearTimeout(timer);
    };
  }, [path]);
  return data;
}

/** Returns the process and the number of the instance that wrote a runtime line. */
const instanceOf = (line: LogLine | RuntimeLine): string | undefined =>
  'instance' in line ? `${line.process ?? 'web'} ${line.instance}` : undefined;

const isLine = (value: unknown): value is LogLine | RuntimeLine =>
  typeof value === 'object' && value !== null && 'text' in value && 'stream' in value;
