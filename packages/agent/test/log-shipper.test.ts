import type { LogLineIn } from '@berth/wire/task';
import { expect, it } from 'vitest';
import { createLogShipper } from '../src/log-shipper.ts';

const line = (text: string): LogLineIn => ({ stream: 'stdout', text });
const soon = (): AbortSignal => AbortSignal.timeout(2_000);

it('numbers lines from 0 without gaps, in batches of at most 500', async () => {
  const batches: [number, string[]][] = [];
  const shipper = createLogShipper({
    send: async (first, lines) => void batches.push([first, lines.map((l) => l.text)]),
    onDropped: () => undefined,
    flushMs: 1,
  });
  for (let i = 0; i < 1200; i += 1) shipper.push(line(String(i)));
  await shipper.flush(soon());
  expect(batches.map(([first, lines]) => [first, lines.length])).toEqual([
    [0, 500],
    [500, 500],
    [1000, 200],
  ]);
  expect(batches.flatMap(([, lines]) => lines)).toEqual(Array.from({ length: 1200 }, (_, i) => String(i)));
});

it('never blocks: what comes while nothing is taken pushes out the oldest, and a line says so', async () => {
  const sent: string[] = [];
  let open: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => (open = resolve));
  const shipper = createLogShipper({
    send: async (_, lines) => {
      await gate;
      sent.push(...lines.map((l) => l.text));
    },
    onDropped: () => undefined,
    flushMs: 1,
    maxLines: 10,
  });
  shipper.push(line('first'));
  await new Promise((r) => setTimeout(r, 20));
  for (let i = 0; i < 25; i += 1) shipper.push(line(String(i)));
  open();
  await shipper.flush(soon());
  expect(sent).toEqual([
    'first',
    '… 15 lines were left out: they came faster than they could be sent',
    ...Array.from({ length: 10 }, (_, i) => String(i + 15)),
  ]);
});

it('goes on after a batch that will never be taken, and gives up with the signal', async () => {
  const dropped: unknown[] = [];
  const sent: string[] = [];
  const shipper = createLogShipper({
    send: async (first, lines) => {
      if (first === 0) throw new Error('no');
      sent.push(...lines.map((l) => l.text));
    },
    onDropped: (e) => dropped.push(e),
    flushMs: 1,
  });
  for (let i = 0; i < 501; i += 1) shipper.push(line(String(i)));
  await shipper.flush(soon());
  expect(dropped).toHaveLength(1);
  expect(sent).toEqual(['500']);
  const stuck = createLogShipper({ send: () => new Promise(() => undefined), onDropped: () => undefined, flushMs: 1 });
  stuck.push(line('x'));
  await stuck.flush(AbortSignal.timeout(20));
});

it('cuts long lines and takes out what no database stores', async () => {
  const sent: LogLineIn[] = [];
  const shipper = createLogShipper({ send: async (_, lines) => void sent.push(...lines), onDropped: () => undefined });
  shipper.push({ stream: 'stdout', text: 'x'.repeat(20_000), step: 's'.repeat(400) });
  shipper.push(line('a\0b\ud800'));
  await shipper.flush(soon());
  expect(sent[0]?.text.length).toBeLessThanOrEqual(16_000);
  expect(sent[0]?.step?.length).toBeLessThanOrEqual(300);
  expect(sent[1]?.text).toBe('a\ufffdb\ufffd');
});

it.each([0, 1, 2, 3, 4, 5, 6])('a line that comes %i ticks after a batch was taken is sent, though no other follows', async (ticks) => {
  const sent: string[] = [];
  const shipper = createLogShipper({
    async send(_, lines) {
      sent.push(...lines.map((l) => l.text));
      if (lines[0]?.text === 'first') void late();
    },
    onDropped: () => undefined,
    flushMs: 1,
  });
  const late = async (): Promise<void> => {
    for (let i = 0; i < ticks; i += 1) await Promise.resolve();
    shipper.push(line('second'));
  };
  shipper.push(line('first'));
  await expect.poll(() => sent, { timeout: 1_000, interval: 5 }).toEqual(['first', 'second']);
});
