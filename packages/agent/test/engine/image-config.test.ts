/** The configuration of images, and what the story says about it. */
import { describe, expect, it } from 'vitest';
import { imageNotes } from '../../src/engine/image-notes.ts';
import { readImageConfig } from '../../src/engine/image-config.ts';
import { PLAIN_IMAGE } from '../fake-engine.ts';

describe('readImageConfig', () => {
  it('reads what the instructions of a Dockerfile set', () => {
    const Config = {
      User: 'app:app',
      Entrypoint: ['/e.sh'],
      Cmd: null,
      ExposedPorts: { '443/tcp': {}, '80/tcp': {}, '53/udp': {}, '8000': {} },
      Volumes: { '/data': {} },
      Healthcheck: { Test: ['CMD', 'check', '-v'], Timeout: 2_000_000_000 },
      Env: ['PORT=1', 'A=b', 'PORT=3000'],
    };
    expect(readImageConfig({ Architecture: 'arm64', Config })).toEqual({
      arch: 'arm64',
      user: 'app:app',
      entrypoint: ['/e.sh'],
      cmd: [],
      exposed: [80, 443, 8000],
      volumes: ['/data'],
      healthCheck: { command: ['check', '-v'], timeoutMs: 2_000 },
      port: '3000',
    });
  });
  it('an image without a configuration has none of them', () => {
    const empty = {
      arch: '',
      user: '',
      entrypoint: [],
      cmd: [],
      exposed: [],
      volumes: [],
      healthCheck: null,
      port: null,
    };
    for (const raw of [{}, { Config: null }, { Config: {} }])
      expect(readImageConfig(raw)).toEqual(empty);
  });
  it.each([
    [['CMD-SHELL', 'a && b'], null, { command: ['/bin/sh', '-c', 'a && b'], timeoutMs: 30_000 }],
    [
      ['CMD-SHELL', 'a'],
      ['/bin/bash', '-c'],
      { command: ['/bin/bash', '-c', 'a'], timeoutMs: 30_000 },
    ],
    [['NONE'], null, null],
    [[], null, null],
    [null, null, null],
    [['CMD'], null, null],
  ])('HEALTHCHECK %j with SHELL %j', (Test, Shell, healthCheck) => {
    expect(readImageConfig({ Config: { Healthcheck: { Test }, Shell } }).healthCheck).toEqual(
      healthCheck,
    );
  });
});

describe('imageNotes', () => {
  const use = { arch: 'amd64', targets: [] as string[], port: 8080 };
  it.each([
    ['nothing special', {}, {}, []],
    [
      'another architecture',
      { arch: 'arm64' },
      {},
      [/built for arm64, and this node is amd64.*--platform/],
    ],
    ['an architecture that the node runs too', { arch: '386' }, {}, []],
    ['an unknown architecture', { arch: '' }, {}, []],
    [
      'a VOLUME',
      { volumes: ['/data', '/log/'] },
      {},
      [/VOLUME \/data, \/log: files there are lost with the next deployment.*\(volumes\)/],
    ],
    ['a VOLUME that is mounted', { volumes: ['/data/'] }, { targets: ['/data'] }, []],
    [
      'a VOLUME inside a mount',
      { volumes: ['/data/x'] },
      { targets: ['/data'] },
      [/VOLUME \/data\/x inside a mount/],
    ],
    [
      'a VOLUME beside a mount',
      { volumes: ['/database'] },
      { targets: ['/data'] },
      [/VOLUME \/database: files there/],
    ],
    [
      'a mount inside a VOLUME',
      { volumes: ['/data'] },
      { targets: ['/data/x'] },
      [/VOLUME \/data: files there/],
    ],
    ['another PORT', { port: '3000' }, {}, [/sets PORT=3000; Berth sets PORT=8080/]],
    ['the same PORT', { port: '8080' }, {}, []],
    ['PORT of the project', { port: '3000' }, { port: null }, []],
  ])('%s', (_name, image, more, lines) => {
    const notes = imageNotes({ ...PLAIN_IMAGE, ...image }, { ...use, ...more });
    expect(notes).toEqual(lines.map((line) => expect.stringMatching(line)));
  });
});
