/** Computes what an upgrade would do. Reads nothing itself. */
import type { SchemaReport, SchemaStep } from '@berth/wire/schema-report';

/** The version to install. */
export type Build = {
  version: string;
  commit: string | null;
  arch: string | null;
  schema: SchemaStep[] | null;
  oldest_agent: string | null;
};

export type UpgradePlan = {
  running: string | null;
  installed: string | null;
  next: string;
  database: string;
  /** Schema steps that the first start would run. `seconds`: a rough estimate. */
  schema: { name: string; kind: 'expands' | 'contracts'; seconds: number }[];
  snapshot: {
    taken: boolean;
    folder: string;
    bytes: number;
    needed: number;
    free: number;
    seconds: number;
  };
  way_back: string;
  order: string[];
  agents: { total: number; work: number; stop: { name: string; version: string }[] };
  open_deployments: number;
  notes: string[];
  /** Problems to fix before the upgrade. */
  problems: string[];
};

/** Speed of a copy or migration on a slow disk, in bytes per second. */
const SLOW_DISK = 40 * 1024 ** 2;
const SILENT_MS = 2 * 60_000;

/** Units that an upgrade restarts, in this order. The proxy and the registry keep running. */
const ORDER = ['berth-control-plane', 'berth-gateway', 'berth-relay', 'berth-agent'];

export function planOf(given: {
  state: SchemaReport;
  next: Build;
  running: string | null;
  installed: string | null;
  units: string[];
  arch: string;
  now: number;
}): UpgradePlan {
  const { state, next, running, installed, units } = given;
  const knownSteps = next.schema?.map((step) => step.name) ?? [];
  const missing = (next.schema ?? []).filter(({ name }) => !state.applied.includes(name));
  const unknown =
    next.schema === null ? [] : state.needed.filter((name) => !knownSteps.includes(name));
  const seconds = Math.max(1, Math.ceil(state.snapshot.bytes / SLOW_DISK));
  const { rule } = state.snapshot;
  const isTaken = missing.length > 0 && state.applied.length > 0 && rule !== 'off';
  const contracts = missing.filter((step) => step.needed);
  const oldest = next.oldest_agent;
  const stop = state.nodes.flatMap(({ name, agent_version: version }) =>
    version !== null && oldest !== null && compareVersions(version, oldest) < 0
      ? [{ name, version }]
      : [],
  );
  const stops = stop.map(({ name, version }) => `${name} (${version})`).join(', ');
  const others = state.engine === 'postgres' ? state.control_planes : [];
  const silent = state.nodes
    .filter((node) => given.now - node.last_seen_at > SILENT_MS)
    .map((node) => node.name);
  const lacksRoom = isTaken && state.snapshot.free < state.snapshot.needed;
  const lacksTool = isTaken && state.snapshot.tool === '';
  const severe = (text: string): { problem?: string; note?: string } =>
    rule === 'required' ? { problem: text } : { note: text };
  const remarks: { problem?: string; note?: string }[] = [
    unknown.length > 0
      ? {
          problem:
            `the database has steps that ${next.version} does not know (${unknown.join(', ')}): ` +
            `${next.version} would refuse to start`,
        }
      : {},
    next.arch !== null && next.arch !== given.arch
      ? { problem: `the package is for ${next.arch}, and this machine is ${given.arch}` }
      : {},
    lacksRoom
      ? severe(
          `the disk of ${state.snapshot.folder} has no room for the snapshot: free ` +
            `${state.snapshot.needed - state.snapshot.free} bytes more`,
        )
      : {},
    lacksTool
      ? severe('pg_dump is missing, so there is no snapshot: apt-get install postgresql-client')
      : {},
    stop.length > 0
      ? {
          problem: `agents older than ${oldest} stop working: ${stops}. Upgrade them to ${oldest} first`,
        }
      : {},
    next.schema === null
      ? { note: 'this version does not say which schema it has: it is older than berth upgrade' }
      : {},
    running !== null && compareVersions(next.version, running) < 0
      ? { note: `${next.version} is older than ${running}: this is a way back` }
      : {},
    others.length > 0
      ? {
          note:
            'control planes on this database, to be upgraded one after the other: ' +
            others.join(', '),
        }
      : {},
    silent.length > 0 ? { note: `nodes that are silent: ${silent.join(', ')}` } : {},
    missing.length > 0 && rule === 'off'
      ? { note: 'UPGRADE_SNAPSHOT=off: make a backup first' }
      : {},
  ];
  return {
    running,
    installed,
    next: next.version,
    database: state.database,
    schema: missing.map(({ name, needed }) => ({
      name,
      kind: needed ? 'contracts' : 'expands',
      seconds: needed ? seconds : 1,
    })),
    snapshot: { taken: isTaken, ...pick(state.snapshot), seconds: 2 * seconds },
    way_back:
      contracts.length > 0
        ? 'restore the snapshot (docs/upgrade.md)'
        : 'start the previous version again; it works with this database',
    order: orderOf(units),
    agents: { total: state.nodes.length, work: state.nodes.length - stop.length, stop },
    open_deployments: state.open_deployments,
    notes: remarks.flatMap(({ note }) => note ?? []),
    problems: remarks.flatMap(({ problem }) => problem ?? []),
  };
}

const pick = ({ folder, bytes, needed, free }: SchemaReport['snapshot']) => ({
  folder,
  bytes,
  needed,
  free,
});

/** Returns the restart order: the running units of this machine, then the other machines. */
function orderOf(units: string[]): string[] {
  const own = ORDER.flatMap((name) =>
    units.filter((unit) => unit === `${name}.service` || unit.startsWith(`${name}@`)).sort(),
  );
  const restarted = own.map((unit) => `${unit} restarts here`);
  return [
    ...(restarted.length > 0 ? restarted : ['control plane', 'gateways']),
    'agents on other machines, one after the other',
  ];
}

/** Compares versions such as 0.10.2 number by number. */
export function compareVersions(a: string, b: string): number {
  const [x, y] = [a, b].map((version) =>
    version.split(/[.+~-]/).map((part) => Number.parseInt(part, 10) || 0),
  ) as [number[], number[]];
  for (let i = 0; i < Math.max(x.length, y.length); i++)
    if ((x[i] ?? 0) !== (y[i] ?? 0)) return (x[i] ?? 0) - (y[i] ?? 0);
  return 0;
}
