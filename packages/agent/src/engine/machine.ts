/**
 * Reads what the machine of the container engine has: CPUs, memory, and the devices of the
 * Container Device Interface (CDI). Engine 28 lists the devices; engine 25 names the folders of the
 * CDI files, which the agent reads; an older engine has no devices.
 */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';
import { defined } from '@berth/kit/defined';
import type { Devices } from '@berth/wire/machine';
import type { NodeRegister } from '@berth/wire/node';
import { parse } from 'yaml';
import type { EngineClient } from './engine-client.ts';

export type ReadMachine = (
  signal: AbortSignal,
) => Promise<Pick<NodeRegister, 'cpus' | 'memory_bytes' | 'devices'>>;

/** Fields of `GET /info` that API 1.41 does not have yet. */
type Info = {
  NCPU?: number;
  MemTotal?: number;
  CDISpecDirs?: readonly string[] | null;
  DiscoveredDevices?: readonly { Source?: string; ID?: string }[] | null;
};

const ASK_MS = 5_000;
/** The result expires, because a device or a CDI file can be added while the agent runs. */
const FRESH_MS = 60_000;
const MAX_FILES = 64;
const MAX_FILE_BYTES = 1_048_576;

/** Returns the last known values if the engine does not answer. `hasDevices`: on a deploy node. */
export function createReadMachine(
  engine: Pick<EngineClient, 'call'>,
  { hasDevices, log }: { hasDevices: boolean; log: Logger },
): ReadMachine {
  let last: Awaited<ReturnType<ReadMachine>> = {};
  let readAt = Number.NEGATIVE_INFINITY;
  return async (signal) => {
    if (performance.now() - readAt < FRESH_MS) return last;
    try {
      const info: Info = await engine.call('GET /info', {
        signal,
        timeoutMs: ASK_MS,
        newestVersion: true,
      });
      last = defined({
        cpus: info.NCPU,
        memory_bytes: info.MemTotal,
        devices: hasDevices ? await devicesOf(info, log) : undefined,
      });
      readAt = performance.now();
    } catch (error) {
      signal.throwIfAborted();
      log.debug({ err: error }, 'could not read the CPUs, memory and devices of the machine');
    }
    return last;
  };
}

/** One name of a device. `edits`: what it adds to a container; null: unknown. */
type Device = { kind: string; name: string; edits: string | null };

export async function devicesOf(
  { CDISpecDirs, DiscoveredDevices }: Info,
  log: Pick<Logger, 'debug'>,
): Promise<Devices> {
  const inFiles = (
    await Promise.all((CDISpecDirs ?? []).map((folder) => devicesIn(folder, log)))
  ).flat();
  const listed = Array.isArray(DiscoveredDevices) ? listedOf(DiscoveredDevices) : null;
  const all =
    listed?.map((one) => inFiles.find((d) => d.kind === one.kind && d.name === one.name) ?? one) ??
    inFiles;
  const devices: Record<string, string[]> = {};
  for (const { kind, name } of distinct(all)) (devices[kind] ??= []).push(name);
  return devices;
}

const listedOf = (listed: NonNullable<Info['DiscoveredDevices']>): Device[] =>
  listed.flatMap(({ Source, ID }) => {
    const [, kind, name] = /^([^=]+)=(.+)$/.exec(ID ?? '') ?? [];
    return Source === 'cdi' && kind !== undefined && name !== undefined
      ? [{ kind, name, edits: null }]
      : [];
  });

/**
 * Leaves out further names of one device: `all`, which stands for every device of its kind, and
 * names with the same edits, such as the number and the UUID of a GPU.
 */
function distinct(devices: readonly Device[]): Device[] {
  const seen = new Set<string>();
  return devices
    .filter(
      ({ kind, name }) =>
        name !== 'all' || !devices.some((other) => other.kind === kind && other.name !== 'all'),
    )
    .toSorted(byName)
    .filter(({ kind, name, edits }) => {
      const keys = [`${kind}=${name}`, ...(edits === null ? [] : [`${kind} ${edits}`])];
      if (keys.some((key) => seen.has(key))) return false;
      for (const key of keys) seen.add(key);
      return true;
    });
}

/** Sorts numbers before other names, in their order. */
const byName = (a: Device, b: Device): number =>
  a.name.localeCompare(b.name, 'en', { numeric: true }) || a.kind.localeCompare(b.kind, 'en');

/** Returns the devices of the CDI files of a folder; none if the agent cannot read it. */
async function devicesIn(folder: string, log: Pick<Logger, 'debug'>): Promise<Device[]> {
  const names = await readdir(folder).catch(() => []);
  const files = names.filter((name) => /\.(json|ya?ml)$/.test(name)).sort();
  const devices = await Promise.all(
    files.slice(0, MAX_FILES).map((name) =>
      readSpec(join(folder, name)).catch((error: unknown) => {
        log.debug({ err: error, file: join(folder, name) }, 'could not read a CDI file');
        return [];
      }),
    ),
  );
  return devices.flat();
}

async function readSpec(path: string): Promise<Device[]> {
  const { size } = await stat(path);
  if (size > MAX_FILE_BYTES) throw new Error(`the file has more than ${MAX_FILE_BYTES} bytes`);
  // JSON is YAML too.
  const spec = parse(await readFile(path, 'utf8')) as {
    kind?: unknown;
    devices?: { name?: unknown; containerEdits?: unknown }[] | null;
  } | null;
  const kind = spec?.kind;
  if (typeof kind !== 'string' || !Array.isArray(spec?.devices)) return [];
  return spec.devices.flatMap(({ name, containerEdits }) =>
    typeof name === 'string' || typeof name === 'number'
      ? [
          {
            kind,
            name: String(name),
            edits: containerEdits === undefined ? null : JSON.stringify(containerEdits),
          },
        ]
      : [],
  );
}
