/** CPUs, memory and CDI devices of the machine, as the engine and the CDI files tell them. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createReadMachine, devicesOf } from '../../src/engine/machine.ts';
import { never } from '../data/share.ts';
import { type HttpEngine, json, refuse, startHttpEngine } from '../http-engine.ts';

const GPU = 'nvidia.com/gpu';
let site: HttpEngine | null = null;
let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'berth-cdi-'));
});
afterEach(async () => {
  await site?.stop();
  site = null;
  await rm(dir, { recursive: true });
});
const log = silentLogger();
const put = (name: string, text: string): Promise<void> => writeFile(join(dir, name), text);
const node = (path: string) => ({ deviceNodes: [{ path }] });

/** Written by `nvidia-ctk cdi generate` with the names of both strategies. */
const NVIDIA = `cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/nvidia1
- name: GPU-9d2e
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
- name: 0
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: "1"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
`;

it('reads the files in the CDI folders of engine 25; one device has one name', async () => {
  await put('nvidia.yaml', NVIDIA);
  await put(
    'nic.json',
    JSON.stringify({
      cdiVersion: '0.6.0',
      kind: 'vendor.com/nic',
      devices: [{ name: 'eth1', containerEdits: node('/dev/nic1') }],
    }),
  );
  await put('notes.txt', 'kind: a.b/c');
  const folders = [join(dir, 'none'), dir];
  expect(await devicesOf({ CDISpecDirs: folders }, log)).toEqual({
    [GPU]: ['0', '1'],
    'vendor.com/nic': ['eth1'],
  });
});

it('a file that is not readable leaves the others', async () => {
  await put('broken.yaml', 'devices: [');
  await put('empty.json', '{}');
  await put('large.json', ' '.repeat(1_048_577));
  await put('ok.json', JSON.stringify({ kind: GPU, devices: [{ name: '0' }] }));
  expect(await devicesOf({ CDISpecDirs: [dir] }, log)).toEqual({ [GPU]: ['0'] });
});

it('engine 28 lists the devices itself, also where the agent cannot read the files', async () => {
  const DiscoveredDevices = ['all', '10', '2'].map((name) => ({
    Source: 'cdi',
    ID: `${GPU}=${name}`,
  }));
  expect(await devicesOf({ DiscoveredDevices, CDISpecDirs: ['/none'] }, log)).toEqual({
    [GPU]: ['2', '10'],
  });
  const only = [{ Source: 'cdi', ID: `${GPU}=all` }, { Source: 'other', ID: 'x.y/z=1' }, {}];
  expect(await devicesOf({ DiscoveredDevices: only }, log)).toEqual({ [GPU]: ['all'] });
});

it('an older engine has none', async () => {
  expect(await devicesOf({}, log)).toEqual({});
  expect(await devicesOf({ CDISpecDirs: null, DiscoveredDevices: null }, log)).toEqual({});
});

it('asks the engine with its newest API, and keeps the last answer', async () => {
  let isUp = true;
  site = await startHttpEngine({
    'GET /info': (response, request) =>
      (isUp ? json({ NCPU: 8, MemTotal: 64e9 }) : refuse(500, 'down'))(response, request),
  });
  const read = createReadMachine(site.engine, { hasDevices: true, log });
  expect(await read(never)).toEqual({ cpus: 8, memory_bytes: 64e9, devices: {} });
  expect(site.requests.at(-1)).toMatchObject({ call: 'GET /info', version: '' });
  isUp = false;
  expect(await read(never)).toEqual({ cpus: 8, memory_bytes: 64e9, devices: {} });
  const builder = createReadMachine(site.engine, { hasDevices: false, log });
  expect(await builder(never)).toEqual({});
});
