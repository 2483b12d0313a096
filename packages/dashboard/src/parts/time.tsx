/** Shows times: relative as text, exact as a tooltip. All times follow one clock. */
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
/** Returns the time of the page's clock in ms, which changes every 10 s. */
export const useNow = (): number => useSyncExternalStore(subscribe, () => Math.max(now, 0));

/** Shows “5 min ago”. The tooltip has the exact time, and screen readers say it. */
export function Ago({ at }: { at: string }) {
  // Subscribe to the text instead of the clock: most texts stay the same for a minute or longer,
  // and then React renders nothing.
  const text = useSyncExternalStore(subscribe, () => relativeTime(at, Math.max(now, Date.now())));
  return (
    <time dateTime={at} title={exactTime(at)} style={{ whiteSpace: 'nowrap' }}>
      {text}
    </time>
  );
}

/** Shows the exact time, with the relative time as the tooltip. */
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
