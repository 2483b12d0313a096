/** Log lines of tasks: batches, bounds, drops, and escape sequences. */
import type { LogLineIn } from '@berth/wire/task';
import { stripVTControlCharacters } from 'node:util';
import { expect, it } from 'vitest';
import { createLogShipper } from '../../src/link/log-shipper.ts';

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
  expect(batches.flatMap(([, lines]) => lines)).toEqual(
    Array.from({ length: 1200 }, (_, i) => String(i)),
  );
});

it('never blocks: when the buffer is full new lines push out the oldest, and a line tells how many', async () => {
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
    bounds: { lines: 10, chars: 1e6, stallMs: 1e6, waitMs: 1e6 },
  });
  shipper.push(line('first'));
  await new Promise((r) => setTimeout(r, 20));
  for (let i = 0; i < 25; i += 1) shipper.push(line(String(i)));
  open();
  await shipper.flush(soon());
  expect(sent).toEqual([
    'first',
    '… 15 lines are missing here: the agent kept them until its buffer was full, and the ' +
      'control plane took them too slowly or not at all',
    ...Array.from({ length: 10 }, (_, i) => String(i + 15)),
  ]);
});

it('60,000 lines at once: none is lost, and the program waits until there is room', async () => {
  const sent: string[] = [];
  const shipper = createLogShipper({
    send: async (_, lines) => void sent.push(...lines.map((l) => l.text)),
    onDropped: () => undefined,
  });
  for (let i = 0; i < 60_000; i += 1) shipper.push(line(String(i)));
  const wait = shipper.room();
  expect(wait).not.toBe(null);
  await wait;
  expect(sent.length).toBeGreaterThan(30_000);
  expect(shipper.room()).toBe(null);
  await shipper.flush(soon());
  expect(sent).toEqual(Array.from({ length: 60_000 }, (_, i) => String(i)));
});

it('a control plane that does not answer stops a build for a limited time only', async () => {
  const bounds = { lines: 40, chars: 1e6, stallMs: 50, waitMs: 1e6 };
  let accept: () => void = () => undefined;
  const sent: string[] = [];
  const send = async (_: number, lines: LogLineIn[]): Promise<void> => {
    await new Promise<void>((resolve) => (accept = resolve));
    sent.push(...lines.map((l) => l.text));
  };
  const shipper = createLogShipper({ send, onDropped: () => undefined, flushMs: 1, bounds });
  for (let i = 0; i < 20; i += 1) shipper.push(line(`first ${i}`));
  for (let i = 0; i < 20; i += 1) shipper.push(line(`second ${i}`));
  await shipper.room();
  // It does not wait again before the control plane has accepted something.
  expect(shipper.room()).toBe(null);
  for (let i = 0; i < 60; i += 1) shipper.push(line(`third ${i}`));
  expect(shipper.room()).toBe(null);
  accept();
  await expect.poll(() => sent.length, { interval: 5 }).toBeGreaterThan(0);
  const flushed = shipper.flush(soon());
  await expect.poll(() => (accept(), sent.at(-1)), { interval: 5 }).toBe('third 59');
  await flushed;
  expect(sent.find((text) => text.includes('are missing here'))).toMatch(
    /^… \d+ lines are missing here: .* too slowly or not at all$/,
  );
});

it('a slow control plane stops a build for a limited time in all', async () => {
  const bounds = { lines: 40, chars: 1e6, stallMs: 1e6, waitMs: 60 };
  const shipper = createLogShipper({
    send: () => new Promise(() => undefined),
    onDropped: () => undefined,
    flushMs: 1,
    bounds,
  });
  for (let i = 0; i < 600; i += 1) shipper.push(line(String(i)));
  await shipper.room();
  expect(shipper.room()).toBe(null);
});

it('goes on after a refused batch, and stops flushing when the signal aborts', async () => {
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
  const stuck = createLogShipper({
    send: () => new Promise(() => undefined),
    onDropped: () => undefined,
    flushMs: 1,
  });
  stuck.push(line('x'));
  await stuck.flush(AbortSignal.timeout(20));
});

it('cuts long lines and replaces characters that a database cannot store', async () => {
  const sent: LogLineIn[] = [];
  const shipper = createLogShipper({
    send: async (_, lines) => void sent.push(...lines),
    onDropped: () => undefined,
  });
  shipper.push({ stream: 'stdout', text: 'x'.repeat(20_000), step: 's'.repeat(400) });
  shipper.push(line('a\0b\ud800'));
  await shipper.flush(soon());
  expect(sent[0]?.text.length).toBeLessThanOrEqual(16_000);
  expect(sent[0]?.step?.length).toBeLessThanOrEqual(300);
  expect(sent[1]?.text).toBe('a\ufffdb\ufffd');
});

it.each([0, 1, 2, 3, 4, 5, 6])(
  'a line that is pushed %i ticks after a batch was accepted is sent, even if no other follows',
  async (ticks) => {
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
  },
);

it.each([
  [
    'colours stay',
    '\u001b[31mred\u001b[0m \u001b[1;38;5;200mpink\u001b[m',
    '\u001b[31mred\u001b[0m \u001b[1;38;5;200mpink\u001b[m',
  ],
  ['cursor and screen control go', 'a\u001b[2J\u001b[1;1H\u001b[Kb\u001b[?25lc', 'abc'],
  [
    'titles, links and the clipboard go',
    'a\u001b]0;title\u0007b\u001b]8;;http://evil.example\u001b\\c\u001b]52;c;ZXZpbA==\u0007',
    'abc',
  ],
  ['strings for devices go', 'a\u001bPq#0\u001b\\b\u001b_x\u001b\\c\u001b^y\u001b\\d', 'abcd'],
  ['an unfinished sequence goes', 'a\u001b]0;no end', 'a'],
  ['other escapes go', 'a\u001bcb\u001b(0c\u001b7d', 'abcd'],
  ['sequences of eight bits go', 'a\u009b31mb\u009d0;t\u009cc', 'abc'],
  ['control characters go', 'a\bb\u0007c\rd\u000be\u007ff', 'abcdef'],
  ['tabs stay', 'a\tb', 'a\tb'],
  ['a colour with private marks goes', 'a\u001b[>4;2mb\u001b[?1mc', 'abc'],
  ['a removed sequence leaves no new one', 'a\u001b\u001b[2J[31mb', 'a[31mb'],
])('escape sequences: %s', async (_, text, expected) => {
  const sent: LogLineIn[] = [];
  const shipper = createLogShipper({
    send: async (_first, lines) => void sent.push(...lines),
    onDropped: () => undefined,
  });
  shipper.push({ stream: 'stdout', text, step: text });
  await shipper.flush(soon());
  expect(sent[0]?.text).toBe(expected);
  // The name of a step has no colours.
  expect(sent[0]?.step).toBe(stripVTControlCharacters(expected));
});

// In quadratic time, this takes longer than the time limit of a test.
it('escape sequences are removed in linear time', async () => {
  const sent: LogLineIn[] = [];
  const shipper = createLogShipper({
    send: async (_first, lines) => void sent.push(...lines),
    onDropped: () => undefined,
  });
  for (const text of [
    '\u001b]'.repeat(200_000),
    '\u001b['.repeat(200_000),
    '\u001bP\u001b'.repeat(200_000),
  ])
    shipper.push(line(text));
  await shipper.flush(soon());
  expect(sent).toHaveLength(3);
});
