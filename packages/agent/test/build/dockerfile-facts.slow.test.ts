/** Stages and exposed ports of Dockerfiles. */
import { Worker } from 'node:worker_threads';
import { expect, it } from 'vitest';
import {
  type DockerfileFacts,
  dockerfileFacts,
  instructions,
} from '../../src/build/dockerfile-facts.ts';

it.each<[string, string, number[]]>([
  ['one port', 'FROM node\nEXPOSE 3000', [3000]],
  ['lower case, a protocol, several ports', 'from node\nexpose 80/tcp 53/udp 443', [80, 443]],
  ['none', 'FROM nginx', []],
  ['a range gives its first port', 'FROM x\nEXPOSE 7000-7010', [7000]],
  ['only the last stage counts', 'FROM a AS build\nEXPOSE 1\nFROM b\nEXPOSE 2', [2]],
  [
    'a stage has the ports of the stage that it begins from',
    'FROM a AS base\nEXPOSE 1\nFROM Base\nEXPOSE 2',
    [1, 2],
  ],
  ['a default', 'FROM a\nARG PORT=8081\nEXPOSE $PORT', [8081]],
  ['a default of a reference', 'FROM a\nEXPOSE ${PORT:-9000}', [9000]],
  [
    'an environment variable, both spellings',
    'FROM a\nENV A=1 B="8082"\nENV C 8083\nEXPOSE ${B} $C',
    [8082, 8083],
  ],
  ['a global ARG, only after it is named', 'ARG P=80\nFROM a\nEXPOSE $P\nARG P\nEXPOSE $P', [80]],
  ['a port that nothing defines', 'FROM a\nEXPOSE $PORT', []],
  ['continued lines with a comment between', 'FROM a\nEXPOSE 1 \\\n# no\n  2', [1, 2]],
  ['the other escape character', '# escape=`\nFROM a\nEXPOSE 1 `\n 2', [1, 2]],
  ['a comment', 'FROM a\n# EXPOSE 1\nRUN echo EXPOSE 2', []],
  ['impossible ports', 'FROM a\nEXPOSE 0 65536 99999 -1 abc', []],
  ['an EXPOSE before the first FROM', 'EXPOSE 1\nFROM a', []],
  [
    'a reference that is not closed, and one that is no name',
    'FROM a\nENV P=1\nEXPOSE ${!P} 2 ${P',
    [2, 1],
  ],
  ['a value in quotes with blanks', 'FROM a\nENV A="7 8" B=9\nEXPOSE $A $B', [7, 8, 9]],
  ['several ARGs in a line', 'ARG P=80\nFROM a\nARG P Q=81\nEXPOSE $P $Q', [80, 81]],
  ['Windows line ends', '# a\r\n# escape = `\r\nFROM a\r\nEXPOSE 1 `\r\n 2\r\n', [1, 2]],
  ['no Dockerfile at all', '\u0000\u0001 not text', []],
])('%s', (_what, text, ports) => expect(dockerfileFacts(text).ports).toEqual(ports));

it('lists named stages with their ports, at most 20 of each', () => {
  expect(
    dockerfileFacts('FROM --platform=$X a AS build\nFROM b\nFROM build as web\nEXPOSE 3000')
      .targets,
  ).toEqual([
    { name: 'build', ports: [] },
    { name: 'web', ports: [3000] },
  ]);
  const many = Array.from(
    { length: 50 },
    (_, i) => `FROM a AS s${i}\nEXPOSE ${Array.from({ length: 50 }, (__, p) => p + 1).join(' ')}`,
  );
  const facts = dockerfileFacts(many.join('\n'));
  expect([facts.targets.length, facts.ports?.length]).toEqual([20, 20]);
  expect(dockerfileFacts('FROM a AS <b>').targets).toEqual([]);
});

const KIB = 1024;
const env = (name: string, value: string): string => `ENV ${name}=${value}\n`;
const tenfold = Array.from({ length: 7 }, () => env('a', '$a'.repeat(10))).join('');

/**
 * A heap of 96 MiB holds the parser many times. An expansion without a bound ends the worker, not
 * the tests.
 */
async function inSmallHeap(text: string): Promise<DockerfileFacts> {
  const code = `const { parentPort, workerData } = require('node:worker_threads');
    import(workerData.module).then(({ dockerfileFacts }) => parentPort.postMessage(dockerfileFacts(workerData.text)));`;
  const workerData = {
    text,
    module: new URL('../../src/build/dockerfile-facts.ts', import.meta.url).href,
  };
  const worker = new Worker(code, {
    eval: true,
    workerData,
    resourceLimits: { maxOldGenerationSizeMb: 96 },
  });
  try {
    return await new Promise<DockerfileFacts>((resolve, reject) =>
      worker.once('message', resolve).once('error', reject),
    );
  } finally {
    await worker.terminate();
  }
}

it.each<[string, string, DockerfileFacts]>([
  [
    'variables that multiply',
    `FROM a\nEXPOSE 1\n${env('a', 'aaaaaaaaaa')}${tenfold}` +
      Array.from({ length: 60 }, (_, i) => env(`v${i}`, `$a$a${i}`)).join(''),
    { ports: [1], targets: [] },
  ],
  [
    'stages that inherit many variables',
    `FROM a AS s\n${Array.from({ length: 5_500 }, (_, i) => env(`v${i}`, '1')).join('')}` +
      'FROM s\n'.repeat(9_000),
    { ports: null, targets: [] },
  ],
])('reads %s in a small heap', async (_what, text, facts) => {
  expect(text.length).toBeLessThan(150 * KIB);
  expect(await inSmallHeap(text)).toEqual(facts);
});

it('forgets a variable of over 1 KiB, and keeps 200 of them', () => {
  const portsWith = (value: string): number[] | null =>
    dockerfileFacts(`FROM a\n${env('a', value)}EXPOSE \${a:-7} 2`).ports;
  expect(portsWith('x'.repeat(KIB))).toEqual([2]);
  expect(portsWith('x'.repeat(KIB + 1))).toEqual([7, 2]);
  expect(portsWith(`${'x'.repeat(KIB / 2)}\n${env('a', '$a$a$a')}`)).toEqual([7, 2]);
  const many = Array.from({ length: 201 }, (_, i) => env(`v${i}`, String(i + 1))).join('');
  expect(dockerfileFacts(`FROM a\n${many}EXPOSE $v0 $v199 $v200`).ports).toEqual([1, 200]);
  // A variable that is known can change.
  expect(dockerfileFacts(`FROM a\n${many}ENV v0=9\nEXPOSE $v0`).ports).toEqual([9]);
});

it('does not guess from a part of a file: over 100 stages or 2,000 instructions give no ports', () => {
  const unknown = { ports: null, targets: [] };
  expect(dockerfileFacts(`${'FROM a\n'.repeat(100)}EXPOSE 1`).ports).toEqual([1]);
  expect(dockerfileFacts(`${'FROM a\n'.repeat(101)}EXPOSE 1`)).toEqual(unknown);
  expect(dockerfileFacts(`FROM a\nEXPOSE 1\n${'ENV a=1\n'.repeat(1_998)}`).ports).toEqual([1]);
  expect(dockerfileFacts(`FROM a\nEXPOSE 1\n${'ENV a=1\n'.repeat(1_999)}`)).toEqual(unknown);
  // Commands of a script inside a RUN are not counted.
  expect(dockerfileFacts(`FROM a\nRUN <<E\n${'echo 1\n'.repeat(5_000)}E\nEXPOSE 1`).ports).toEqual([
    1,
  ]);
});

it.each<[string, string]>([
  ['a name without a value', `ENV ${'a'.repeat(128_000)}`],
  ['a carriage return inside a line', `${'A'.repeat(60_000)} b\rc${'d'.repeat(60_000)}`],
  ['a line separator', `ENV a\u2028${'b '.repeat(60_000)}`],
  ['references that are not closed', `EXPOSE ${'${a-'.repeat(32_000)}`],
  ['quotes that are not closed', `ENV a=${`"'`.repeat(60_000)}`],
  ['continued lines', `ENV a=1 \\\n${'b=1 \\\n'.repeat(20_000)} c=1`],
  ['lines of blanks', `${`${' '.repeat(1_000)}\n`.repeat(128)}ENV a=1`],
])('a parser of instructions never gets over 4 KiB: %s', (_what, hostile) => {
  const text = `FROM a\n${hostile}\nEXPOSE 1`;
  const given = [...instructions(text)];
  expect(Math.max(...given.map(({ rest }) => rest.length))).toBeLessThanOrEqual(4 * KIB);
  expect(given.map(({ word }) => word)).toEqual([
    'FROM',
    ...(hostile.endsWith('\nENV a=1') ? ['ENV'] : []),
    'EXPOSE',
  ]);
  expect(dockerfileFacts(text).ports).toEqual([1]);
});
