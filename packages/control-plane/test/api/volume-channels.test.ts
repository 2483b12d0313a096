/** Chunks of moving volumes between two agents, also at different control planes. */
import { describe, expect, it } from 'vitest';
import { createVolumeChannels } from '../../src/api/volume-channels.ts';
import { createChanges, type Topic } from '../../src/domain/platform/changes.ts';

const chunk = (number: number, stream = 's1', last = false) => ({
  stream,
  number,
  last,
  bytes: Buffer.from(`${stream} ${number}`),
});
const { signal } = new AbortController();
const LONG = { ms: 60_000, signal };
const NOW = { ms: 0, signal };
type Channels = ReturnType<typeof createVolumeChannels>;
const send = (c: Channels, number: number, stream = 's1', until = LONG) =>
  c.send('copy', async () => chunk(number, stream), until);
const take = (c: Channels, number: number, stream: string | null = 's1', until = LONG) =>
  c.take('copy', { stream, number }, until);

describe('at one control plane', () => {
  it('the sender waits until the receiver asks for the next chunk', async () => {
    const c = createVolumeChannels(createChanges());
    const sent = send(c, 0);
    expect(await take(c, 0, null)).toMatchObject({ number: 0, bytes: Buffer.from('s1 0') });
    expect(c.held()).toBe(1);
    const next = take(c, 1);
    expect(await sent).toBe('taken');
    const sentNext = send(c, 1);
    expect(await next).toMatchObject({ number: 1 });
    expect(await take(c, 2, 's1', NOW)).toBeNull();
    expect(await sentNext).toBe('taken');
    expect(c.held()).toBe(0);
  });
  it('a receiver that lost the beginning gets a new stream', async () => {
    const c = createVolumeChannels(createChanges());
    const sent = send(c, 5);
    expect(await take(c, 0, null)).toBeNull();
    expect(await sent).toBe('restart');
    void send(c, 0, 's2');
    expect(await take(c, 0, null)).toMatchObject({ stream: 's2' });
  });
  it('a sender that begins again reaches a receiver in the middle of the old stream', async () => {
    const c = createVolumeChannels(createChanges());
    const waiting = take(c, 7);
    void send(c, 0, 's2');
    expect(await waiting).toMatchObject({ stream: 's2', number: 0 });
  });
  it('a chunk that is sent twice is given once', async () => {
    const c = createVolumeChannels(createChanges());
    const first = send(c, 0);
    const again = send(c, 0);
    expect(await first).toBe('wait');
    expect(await take(c, 0, null)).toMatchObject({ number: 0 });
    const next = take(c, 1, 's1', { ms: 50, signal });
    expect(await again).toBe('taken');
    // The answer was lost, so the sender sends it once more.
    const late = send(c, 0);
    expect([await next, await late]).toEqual([null, 'taken']);
  });
  it('without a receiver the sender is asked to wait, and the memory is free again', async () => {
    const c = createVolumeChannels(createChanges(), 1);
    const sent = send(c, 0, 's1', { ms: 20, signal });
    await expect(c.send('other', async () => chunk(0), NOW)).rejects.toMatchObject({
      code: 'too_many_requests',
    });
    expect([await sent, c.held()]).toEqual(['wait', 0]);
  });
});

it('at two control planes the receiver asks again until it reaches the chunk', async () => {
  const listeners: ((topics: readonly Topic[]) => void)[] = [];
  const both = [0, 1].map((own) =>
    createVolumeChannels(
      createChanges({
        send: (topics) => void setImmediate(() => listeners[1 - own]?.(topics)),
        subscribe: (listener) => void (listeners[own] = listener),
      }),
    ),
  ) as [Channels, Channels];
  let at = 0;
  /** A balancer that leads each request to the other one. */
  const turn = (): Channels => both[(at += 1) % 2] as Channels;
  const got: string[] = [];
  const sender = (async () => {
    for (let n = 0; n < 20; ) if ((await send(turn(), n)) === 'taken') n += 1;
  })();
  for (let n = 0, tries = 0; n < 20; tries += 1) {
    expect(tries).toBeLessThan(500);
    const found = await take(turn(), n, n === 0 ? null : 's1');
    if (found === null) continue;
    got.push(found.bytes.toString());
    n += 1;
  }
  expect(got).toEqual(Array.from({ length: 20 }, (_, n) => `s1 ${n}`));
  await take(both[0], 20, 's1', NOW);
  await sender;
});
