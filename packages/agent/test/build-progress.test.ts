import { expect, it } from 'vitest';
import { type BuildLine, plainReader, rawJsonReader } from '../src/tools/build-progress.ts';

const at = (s: number): string => new Date(Date.UTC(2026, 0, 1, 0, 0, s)).toISOString();
const b64 = (text: string): string => Buffer.from(text).toString('base64');

it('rawjson: names of steps, output cut anywhere, cached ones, the failure', () => {
  const lines: BuildLine[] = [];
  const reader = rawJsonReader((line) => lines.push(line));
  const say = (progress: object): void => reader.read(JSON.stringify(progress));
  say({ vertexes: [{ digest: 'a', name: '[internal] load .dockerignore', started: at(0), completed: at(1) }] });
  say({
    vertexes: [
      { digest: 'b', name: '[1/3] FROM busybox', started: at(1), completed: at(1), cached: true },
      { digest: 'c', name: '[2/3] RUN x' },
    ],
  });
  say({ vertexes: [{ digest: 'c', name: '[2/3] RUN x', started: at(1) }] });
  say({
    logs: [
      { vertex: 'c', stream: 1, data: b64('one\ntw') },
      { vertex: 'c', stream: 2, data: b64('ouch\n') },
    ],
  });
  say({ logs: [{ vertex: 'c', stream: 1, data: b64('o\r\nthree') }] });
  say({ vertexes: [{ digest: 'd', name: '[other 1/1] RUN y', started: at(1), completed: at(2), error: 'context canceled' }] });
  say({ vertexes: [{ digest: 'c', name: '[2/3] RUN x', started: at(1), completed: at(3), error: 'exit code: 3' }] });
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
  expect(reader.failed()).toEqual({ step, error: 'exit code: 3', output: ['one', 'ouch', 'two', 'three'] });
});

it('plain: the same from what an older buildx prints', () => {
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
    { stream: 'system', step, text: 'failed: executor failed running [/bin/sh -c echo so >&2; exit 3]: exit code: 3' },
  ]);
  expect(reader.failed()).toMatchObject({ step, output: ['so'] });
});
