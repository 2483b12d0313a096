/**
 * Times: relative in the text, exact on demand. The page has one clock, so all times change
 * together.
 */
import { useSyncExternalStore } from 'react';
import { exactTime, relativeTime } from './time-text.ts';

const TICK_MS = 10_000;
let now = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | null = null;
function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const each of listeners) each();
  }, TICK_MS);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0 || timer === null) return;
    clearInterval(timer);
    timer = null;
  };
}
/** Time of the page's clock in ms; it moves every 10 s. */
export const useNow = (): number => useSyncExternalStore(subscribe, () => Math.max(now, 0));

/**
 * “5 min ago”; the exact time in the time zone of the browser is the tooltip and is said by screen
 * readers.
 */
export function Ago({ at }: { at: string }) {
  // The text is what the clock changes. Most texts stay for a minute or longer, and then React
  // renders nothing for them.
  const text = useSyncExternalStore(subscribe, () => relativeTime(at, Math.max(now, Date.now())));
  return (
    <time dateTime={at} title={exactTime(at)} style={{ whiteSpace: 'nowrap' }}>
      {text}
    </time>
  );
}

/** The exact time, with the relative one as the tooltip. */
export function Exact({ at }: { at: string }) {
  const clock = useNow();
  return (
    <time
      dateTime={at}
      title={relativeTime(at, Math.max(clock, Date.now()))}
      style={{ fontVariantNumeric: 'tabular-nums' }}
    >
      {exactTime(at)}
    </time>
  );
}
