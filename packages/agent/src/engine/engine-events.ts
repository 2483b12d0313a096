/** Reads the engine's events: the live stream, and the stored events. */
import type { LabelFilter } from './docker.ts';
import { filtersOf } from './containers.ts';
import type { Answer, EngineClient } from './engine-client.ts';
import { engineTime } from './engine-time.ts';
import { createJsonLines } from './json-lines.ts';

type EngineEvent = Answer<'GET /events'>;

export async function watchContainers(
  engine: EngineClient,
  labels: LabelFilter,
  onEvent: (action: string, id: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const events = createJsonLines(({ Action = '', Actor }: EngineEvent) =>
    onEvent(Action, Actor?.ID ?? ''),
  );
  await engine.stream('GET /events', {
    query: { filters: filtersOf(labels, { type: ['container'] }) },
    signal,
    timeoutMs: null,
    onChunk: events.add,
  });
}

/** Returns how a container last ended; null if the engine no longer stores that event. */
export async function lastEndOf(
  engine: EngineClient,
  id: string,
  since: string,
): Promise<{ exitCode: number | null; outOfMemory: boolean } | null> {
  const ends: EngineEvent[] = [];
  const events = createJsonLines((event: EngineEvent) => void ends.push(event));
  await engine.stream('GET /events', {
    query: {
      since: engineTime(since),
      until: engineTime(new Date().toISOString()),
      filters: JSON.stringify({ container: [id], event: ['die', 'oom'] }),
    },
    timeoutMs: 10_000,
    onChunk: events.add,
  });
  events.end();
  const die = ends.findLast(({ Action }) => Action === 'die');
  if (die === undefined) return null;
  const code = die.Actor?.Attributes?.['exitCode'] ?? '';
  return {
    exitCode: /^\d+$/.test(code) ? Number(code) : null,
    outOfMemory: ends.some(({ Action }) => Action === 'oom'),
  };
}
