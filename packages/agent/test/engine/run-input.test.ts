/** The standard input of runs: person and container come in any order, and either can leave. */
import { Duplex } from 'node:stream';
import { beforeEach, expect, it } from 'vitest';
import { createRunInputs, type RunInputs } from '../../src/engine/run-input.ts';

let inputs: RunInputs;
let attached: string[];
let sockets: Duplex[];
let received: string;
let cut: number[];
/** Holds the bytes that the command has not read. */
let isStalled: boolean;
let waiting: (() => void)[];

beforeEach(() => {
  attached = [];
  sockets = [];
  received = '';
  cut = [];
  isStalled = false;
  waiting = [];
  inputs = createRunInputs(
    {
      async attachInput(id) {
        attached.push(id);
        const socket = new Duplex({
          read() {},
          write(chunk: Buffer, _, done) {
            received += chunk.toString();
            if (isStalled) waiting.push(done);
            else done();
          },
          final(done) {
            received += '<EOF>';
            done();
          },
        });
        sockets.push(socket);
        return socket;
      },
    },
    { personMs: 5_000, runMs: 5_000 },
  );
});

const never = new AbortController().signal;
const options = (signal = never) => ({ signal, onCut: (bytes: number) => void cut.push(bytes) });

it.each(['the person', 'the run'])('%s comes first', async (first) => {
  const opening = first === 'the person' ? inputs.open('r', never) : null;
  const expected = inputs.expect('r');
  const attaching = expected.attach('c1', options());
  const input = await (opening ?? inputs.open('r', never));
  await attaching;
  expect(attached).toEqual(['c1']);
  await new Promise<void>((resolve) => input.write(Buffer.from('one'), resolve));
  input.eof();
  expect(await input.ended).toBe(0);
  expect(received).toBe('one<EOF>');
  await input.stop();
  expect(cut, 'an input that was sent whole is not cut off').toEqual([]);
});

it('a lost person ends the input, and tells after how many bytes', async () => {
  const expected = inputs.expect('r');
  const [input] = await Promise.all([inputs.open('r', never), expected.attach('c1', options())]);
  input.write(Buffer.from('half'), () => undefined);
  await input.stop();
  await expect.poll(() => received).toBe('half<EOF>');
  expect(cut).toEqual([4]);
});

it('bytes are confirmed when the command has taken them', async () => {
  const expected = inputs.expect('r');
  const [input] = await Promise.all([inputs.open('r', never), expected.attach('c1', options())]);
  isStalled = true;
  let isTaken = false;
  input.write(Buffer.from('slow'), () => (isTaken = true));
  await expect.poll(() => waiting.length).toBe(1);
  expect(isTaken).toBe(false);
  waiting[0]?.();
  await expect.poll(() => isTaken).toBe(true);
});

it('the session ends when the command has ended', async () => {
  const expected = inputs.expect('r');
  const [input] = await Promise.all([inputs.open('r', never), expected.attach('c1', options())]);
  sockets[0]?.destroy();
  expect(await input.ended).toBe(0);
});

it('a person who leaves before the start is replaced by the next one', async () => {
  const expected = inputs.expect('r');
  const leaving = new AbortController();
  const lost = inputs.open('r', leaving.signal);
  await expect.poll(() => inputs.open('r', never).catch(String)).toContain('another connection');
  leaving.abort(new Error('left'));
  await expect(lost).rejects.toThrow('left');
  const attaching = expected.attach('c1', options());
  const input = await inputs.open('r', never);
  await attaching;
  input.eof();
  expect(await input.ended).toBe(0);
});

it('nobody comes: the run fails, and the container is not attached for ever', async () => {
  const quick = createRunInputs(
    { attachInput: () => Promise.reject(new Error('no engine')) },
    { personMs: 20, runMs: 20 },
  );
  await expect(quick.expect('r').attach('c1', options())).rejects.toMatchObject({
    code: 'run_input_missing',
    message: expect.stringContaining('within 0.02 s') as string,
  });
  await expect(quick.open('other', never)).rejects.toThrow('takes no standard input');
});

it('a run that is stopped, or that ends before its start, tells both sides', async () => {
  const stop = new AbortController();
  const expected = inputs.expect('r');
  const attaching = expected.attach('c1', options(stop.signal));
  stop.abort(new Error('cancelled'));
  await expect(attaching).rejects.toThrow('cancelled');
  const opening = inputs.open('r', never);
  expected.close();
  await expect(opening).rejects.toThrow('the run ended before');
});
