/** Stages and exposed ports of Dockerfiles. */
import { expect, it } from 'vitest';
import { dockerfileFacts } from '../src/tools/dockerfile-facts.ts';

it.each<[string, string, number[]]>([
  ['one port', 'FROM node\nEXPOSE 3000', [3000]],
  ['lower case, a protocol, several ports', 'from node\nexpose 80/tcp 53/udp 443', [80, 443]],
  ['none', 'FROM nginx', []],
  ['a range gives its first port', 'FROM x\nEXPOSE 7000-7010', [7000]],
  ['only the last stage counts', 'FROM a AS build\nEXPOSE 1\nFROM b\nEXPOSE 2', [2]],
  ['a stage has the ports of the stage that it begins from', 'FROM a AS base\nEXPOSE 1\nFROM Base\nEXPOSE 2', [1, 2]],
  ['a default', 'FROM a\nARG PORT=8081\nEXPOSE $PORT', [8081]],
  ['a default of a reference', 'FROM a\nEXPOSE ${PORT:-9000}', [9000]],
  ['an environment variable, both spellings', 'FROM a\nENV A=1 B="8082"\nENV C 8083\nEXPOSE ${B} $C', [8082, 8083]],
  ['a global ARG, only after it is named', 'ARG P=80\nFROM a\nEXPOSE $P\nARG P\nEXPOSE $P', [80]],
  ['a port that nothing defines', 'FROM a\nEXPOSE $PORT', []],
  ['continued lines with a comment between', 'FROM a\nEXPOSE 1 \\\n# no\n  2', [1, 2]],
  ['the other escape character', '# escape=`\nFROM a\nEXPOSE 1 `\n 2', [1, 2]],
  ['a comment', 'FROM a\n# EXPOSE 1\nRUN echo EXPOSE 2', []],
  ['impossible ports', 'FROM a\nEXPOSE 0 65536 99999 -1 abc', []],
  ['an EXPOSE before the first FROM', 'EXPOSE 1\nFROM a', []],
  ['no Dockerfile at all', '\u0000\u0001 not text', []],
])('%s', (_what, text, ports) => expect(dockerfileFacts(text).ports).toEqual(ports));

it('lists named stages with their ports, at most 20 of each', () => {
  expect(dockerfileFacts('FROM --platform=$X a AS build\nFROM b\nFROM build as web\nEXPOSE 3000').targets).toEqual([
    { name: 'build', ports: [] },
    { name: 'web', ports: [3000] },
  ]);
  const many = Array.from({ length: 50 }, (_, i) => `FROM a AS s${i}\nEXPOSE ${Array.from({ length: 50 }, (__, p) => p + 1).join(' ')}`);
  const facts = dockerfileFacts(many.join('\n'));
  expect([facts.targets.length, facts.ports.length]).toEqual([20, 20]);
  expect(dockerfileFacts('FROM a AS <b>').targets).toEqual([]);
});
