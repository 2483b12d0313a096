/** Sending points: what survives an outage, and what an older control plane gets. */
import { silentLogger } from '@berth/kit/log';
import { ApiError, UnreachableError } from '@berth/wire/client';
import { expect, it } from 'vitest';
import type { Measured } from '../../src/usage/meter.ts';
import { sendUsage } from '../../src/usage/sender.ts';

type Sent = { node_id: string; ages: number[] };
/**
 * Runs `rounds` readings of `each` points, one every `next_ms` of the answer. `answer`: what the
 * control plane does with a batch.
 */
async function run(rounds: number, answer: (batch: number) => number | Error, each = 1) {
  const sent: Sent[] = [];
  const pauses: number[] = [];
  let clock = 0;
  let readings = 0;
  const ending = new AbortController();
  await sendUsage(
    {
      client: {
        call: (async (
          _: string,
          { body }: { body: { node_id: string; points: { age_ms: number }[] } },
        ) => {
          sent.push({ node_id: body.node_id, ages: body.points.map(({ age_ms }) => age_ms) });
          const result = answer(sent.length);
          if (result instanceof Error) throw result;
          return { stored: body.points.length, next_ms: result };
        }) as never,
      },
      meter: {
        async read() {
          readings += 1;
          return Array.from(
            { length: each },
            () => ({ readAt: clock, project: 'p', point: {} }) as Measured,
          );
        },
      },
      nodeId: () => 'n1',
      log: silentLogger(),
      clock: () => clock,
      async pause(ms) {
        if (readings === rounds) return ending.abort();
        pauses.push(ms);
        clock += ms;
      },
    },
    ending.signal,
  );
  return { sent, pauses };
}
const down = (): Error => new UnreachableError('refused');

it('reads again when the control plane says, but neither at once nor never', async () => {
  const answers = [42_000, 0, 9e9];
  const { pauses } = await run(4, (batch) => answers[batch - 1] ?? 60_000);
  expect(pauses).toEqual([5_000, 42_000, 1_000, 120_000]);
});

it('keeps the points of an outage, with their age', async () => {
  const { sent } = await run(3, (batch) => (batch < 3 ? down() : 60_000));
  expect(sent.map(({ ages }) => ages)).toEqual([[0], [60_000, 0], [120_000, 60_000, 0]]);
});

it('keeps at most the last hour', async () => {
  const { sent } = await run(70, (batch) => (batch < 70 ? down() : 60_000));
  expect(sent.at(-1)?.ages).toHaveLength(55);
});

it('keeps at most 20,000 points, and sends 1,000 at a time', async () => {
  const { sent } = await run(30, (batch) => (batch < 30 ? down() : 60_000), 900);
  expect(sent.slice(29).map(({ ages }) => ages.length)).toEqual(
    Array.from({ length: 20 }, () => 1_000),
  );
});

it('an older control plane gets no points again for ten minutes', async () => {
  const { sent, pauses } = await run(
    2,
    () => new ApiError(404, 'not_found', 'no such route', null),
  );
  expect([sent.map(({ ages }) => ages.length), pauses]).toEqual([
    [1, 1],
    [5_000, 600_000],
  ]);
});

it('a batch that is refused is not sent again', async () => {
  const { sent } = await run(2, () => new ApiError(422, 'validation', 'no', null));
  expect(sent.map(({ ages }) => ages.length)).toEqual([1, 1]);
});
