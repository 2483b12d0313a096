/** A viewer of runtime logs. */
import { readFrames } from '@berth/testbed/event-stream';
import { expect } from 'vitest';

type Event = {
  event: string;
  id: string;
  data: {
    text?: string;
    process?: string;
    instance?: number;
    count?: string;
    from?: string | null;
    to?: string;
    message?: string;
  };
};
export type Viewer = {
  events: Event[];
  of(event: string): Event['data'][];
  close(): void;
};

export async function view(
  url: string,
  project: string,
  token: string,
  query = '?tail=0',
  lastId?: string,
): Promise<Viewer> {
  const stop = new AbortController();
  const answer = await fetch(`${url}/api/projects/${project}/logs${query}`, {
    headers: {
      authorization: `Bearer ${token}`,
      accept: 'text/event-stream',
      ...(lastId === undefined ? {} : { 'last-event-id': lastId }),
    },
    signal: stop.signal,
  });
  expect(answer.status).toBe(200);
  const viewer: Viewer = {
    events: [],
    of: (event) => viewer.events.filter((e) => e.event === event).map(({ data }) => data),
    close: () => stop.abort(),
  };
  void (async () => {
    for await (const { event, id, data } of readFrames(answer))
      viewer.events.push({ event, id: id ?? '', data: JSON.parse(data) });
  })().catch(() => undefined);
  return viewer;
}

/**
 * Lines `line NUMBER` that come twice, not in order, or after a gap without a `lost` event.
 * `before`: the number that the viewer has; null: any.
 */
export function unexplainedGaps(viewer: Viewer, before: number | null = null): string[] {
  const unexplained: string[] = [];
  let isMarked = false;
  for (const { event, data } of viewer.events) {
    if (event === 'lost') isMarked = true;
    const number = Number(/^line (\d+)\b/.exec(data.text ?? '')?.[1] ?? Number.NaN);
    if (event !== 'line' || Number.isNaN(number)) continue;
    const isNext = before === null || number === before + 1;
    if (!isNext && !(isMarked && number > (before ?? 0)))
      unexplained.push(`${before} to ${number}`);
    before = number;
    isMarked = false;
  }
  return unexplained;
}
