/** Reads the output of buildx: log lines with steps, and the failed step. */
import { expect, it } from 'vitest';
import { type BuildLine, plainReader, rawJsonReader } from '../../src/build/build-progress.ts';

const at = (s: number): string => new Date(Date.UTC(2026, 0, 1, 0, 0, s)).toISOString();
const b64 = (text: string): string => Buffer.from(text).toString('base64');

it('rawjson: reads steps, output in pieces, cached steps and the failure', () => {
  const lines: BuildLine[] = [];
  const reader = rawJsonReader((line) => lines.push(line));
  const send = (progress: object): void => reader.read(JSON.stringify(progress));
  send({
    vertexes: [
      { digest: 'a', name: '[internal] load .dockerignore', started: at(0), completed: at(1) },
    ],
  });
  send({
    vertexes: [
      { digest: 'b', name: '[1/3] FROM busybox', started: at(1), completed: at(1), cached: true },
      { digest: 'c', name: '[2/3] RUN x' },
    ],
  });
  send({ vertexes: [{ digest: 'c', name: '[2/3] RUN x', started: at(1) }] });
  send({
    logs: [
      { vertex: 'c', stream: 1, data: b64('one\ntw') },
      { vertex: 'c', stream: 2, data: b64('ouch\n') },
    ],
  });
  send({ logs: [{ vertex: 'c', stream: 1, data: b64('o\r\nthree') }] });
  send({
    vertexes: [
      {
        digest: 'd',
        name: '[other 1/1] RUN y',
        started: at(1),
        completed: at(2),
        error: 'context canceled',
      },
    ],
  });
  send({
    vertexes: [
      { digest: 'c', name: '[2/3] RUN x', started: at(1), completed: at(3), error: 'exit code: 3' },
    ],
  });
  reader.read('ERROR: failed to build: exit code: 3');
  const step = '[2/3] RUN x';
  expect(lines).toEqual([
    { stream: 'system', step: '[1/3] FROM busybox', text: '[1/3] FROM busybox (cached)' },
    { stream: 'system', step, text: step },
    { stream: 'stdout', step, text: 'one' },
    { stream: 'stderr', step, text: 'ouch' },
    { stream: 'stdout', step, text: 'two' },
    { stream: 'system', step: '[other 1/1] RUN y', text: '[other 1/1] RUN y' },
    { stream: 'system', step: '[other 1/1] RUN y', text: 'failed: context canceled' },
    { stream: 'stdout', step, text: 'three' },
    { stream: 'system', step, text: 'failed: exit code: 3' },
    { stream: 'stderr', step: null, text: 'ERROR: failed to build: exit code: 3' },
  ]);
  expect(reader.failed()).toEqual({
    step,
    error: 'exit code: 3',
    output: ['one', 'ouch', 'two', 'three'],
  });
});

it('plain: reads steps, output and the failure of an older buildx', () => {
  const lines: BuildLine[] = [];
  const reader = plainReader((line) => lines.push(line));
  const said = `#0 building with "default" instance using docker driver

#1 [internal] load build definition from Dockerfile
#1 DONE 0.0s

#4 [1/3] FROM docker.io/library/busybox:stable
#4 CACHED

#6 [3/3] RUN echo so >&2; exit 3
#6 0.379 so
#6 ERROR: executor failed running [/bin/sh -c echo so >&2; exit 3]: exit code: 3
------
 > [3/3] RUN echo so >&2; exit 3:
0.379 so
------
ERROR: failed to build: failed to solve: exit code: 3`;
  for (const line of said.split('\n')) reader.read(line);
  const step = '[3/3] RUN echo so >&2; exit 3';
  expect(lines.filter((l) => l.step === step)).toEqual([
    { stream: 'system', step, text: step },
    { stream: 'stdout', step, text: 'so' },
    {
      stream: 'system',
      step,
      text: 'failed: executor failed running [/bin/sh -c echo so >&2; exit 3]: exit code: 3',
    },
  ]);
  expect(reader.failed()).toMatchObject({ step, output: ['so'] });
});

/** Log lines of one step that prints these pieces to its standard output. */
function printed(pieces: readonly (string | Buffer)[]): string[] {
  const lines: BuildLine[] = [];
  const reader = rawJsonReader((line) => lines.push(line));
  const vertex = { digest: 'a', name: '[1/1] RUN x', started: at(0) };
  reader.read(JSON.stringify({ vertexes: [vertex] }));
  for (const piece of pieces)
    reader.read(
      JSON.stringify({
        logs: [{ vertex: 'a', stream: 1, data: Buffer.from(piece as string).toString('base64') }],
      }),
    );
  reader.read(JSON.stringify({ vertexes: [{ ...vertex, completed: at(1) }] }));
  return lines.filter((line) => line.stream === 'stdout').map((line) => line.text);
}

// In quadratic time, this takes longer than the time limit of a test.
it('rawjson: output without line feeds is read in linear time', () => {
  expect(printed(Array.from({ length: 40_000 }, () => 'x'.repeat(50)))).toEqual([
    `${'x'.repeat(15_950)}… (line cut: 1984050 more characters)`,
  ]);
});

it('rawjson: a character that is split between two pieces is joined', () => {
  const bytes = Buffer.from('grüße €\n');
  expect(printed([...bytes].map((byte) => Buffer.of(byte)))).toEqual(['grüße €']);
  expect(printed([Buffer.from('€').subarray(0, 2)])).toEqual(['\u{FFFD}']);
});

it('rawjson: a carriage return starts the line again, as on a terminal', () => {
  expect(printed(['10 %\r', '20 %\r100 %\r', '\ndone\r\nend'])).toEqual(['100 %', 'done', 'end']);
});

it('rawjson: a message beyond the limit is named in the log', () => {
  const lines: BuildLine[] = [];
  const reader = rawJsonReader((line) => lines.push(line));
  reader.read('{"logs":[{"vertex":"a","stream":1,"data":"eHh4… (line cut: 5 more characters)');
  expect(lines).toEqual([
    {
      stream: 'system',
      step: null,
      text: 'a message of the builder was longer than 4 MiB; its output is missing in this log',
    },
  ]);
});
