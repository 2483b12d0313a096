/**
 * `berth upgrade --check`: shows what an upgrade to the next version would change on this machine.
 */
import { parseArgs } from 'node:util';
import { WrongUsage } from '@berth/kit/wrong-usage';
import { print, runCommand } from '../lib/command.ts';
import { planOf, type UpgradePlan } from './plan.ts';
import { installedPackage, readBuild, readState, runningUnits, runningVersion } from './sources.ts';

const USAGE = `Usage: berth upgrade --check [FILE.deb|FOLDER] [--json]

Says what an upgrade to this package or artefact would change: version, schema, snapshot, agents, processes.
Without a file it compares the running system with the programs on this machine. It changes nothing. The
upgrade itself is: apt-get install ./FILE.deb (docs/upgrade.md).

Run it on the machine of the control plane, as root. Exit code 1: something must be done first.

  --json   prints one JSON object`;

export const runUpgrade = (args: string[]): Promise<number> =>
  runCommand('upgrade', USAGE, args, () => upgrade(args));

async function upgrade(args: string[]): Promise<number> {
  const { positionals, values } = parseArgs({
    args,
    allowPositionals: true,
    options: { check: { type: 'boolean' }, json: { type: 'boolean' } },
  });
  const [file, ...more] = positionals;
  if (values.check !== true)
    throw new WrongUsage('only --check exists: the upgrade itself is apt-get install ./FILE.deb');
  if (more.length > 0) throw new WrongUsage('name at most one package or folder');
  const state = await readState();
  const own = {
    version: state.version,
    arch: null,
    commit: null,
    schema: state.schema,
    oldest_agent: state.oldest_agent,
  };
  const plan = planOf({
    state,
    next: file === undefined ? own : await readBuild(file),
    running: await runningVersion(),
    installed: await installedPackage(),
    units: await runningUnits(),
    arch: process.arch === 'x64' ? 'amd64' : process.arch,
    now: Date.now(),
  });
  print(values.json === true ? JSON.stringify(plan) : shown(plan));
  return plan.problems.length === 0 ? 0 : 1;
}

function shown(plan: UpgradePlan): string {
  const lines = [
    versionLine(plan),
    `database    ${plan.database}, ${mebibytes(plan.snapshot.bytes)}`,
    ...schemaLines(plan),
    snapshotLine(plan),
    `way back    ${plan.way_back}`,
    ...plan.order.map((step, i) => `${i === 0 ? 'order       ' : '            '}${i + 1}. ${step}`),
    agentsLine(plan),
    `deployments ${plan.open_deployments} open; they wait while the control plane restarts`,
    ...plan.notes.map((note) => `note        ${note}`),
    ...plan.problems.map((problem) => `problem     ${problem}`),
  ];
  return lines.join('\n');
}

function versionLine({ running, next, installed }: UpgradePlan): string {
  const ofPackage = installed === null ? '' : ` (installed package: ${installed})`;
  return `version     ${running ?? 'not running'} -> ${next}${ofPackage}`;
}

function schemaLines({ schema }: UpgradePlan): string[] {
  if (schema.length === 0) return ['schema      no change'];
  const effects = {
    expands: 'adds only',
    contracts: 'earlier versions cannot go back without the snapshot',
  };
  return schema.map(
    ({ name, kind, seconds }) => `schema      ${name}: ${effects[kind]}, about ${seconds} s`,
  );
}

function snapshotLine({ snapshot }: UpgradePlan): string {
  if (!snapshot.taken) return 'snapshot    none';
  const room = `needs ${mebibytes(snapshot.needed)}, free ${mebibytes(snapshot.free)}`;
  return `snapshot    in ${snapshot.folder}, about ${snapshot.seconds} s; ${room}`;
}

function agentsLine({ agents: { total, work, stop } }: UpgradePlan): string {
  const stopping = stop.length === 0 ? '' : `, ${stop.length} stop working`;
  return `agents      ${total} nodes: ${work} keep working${stopping}`;
}

const mebibytes = (bytes: number): string => `${Math.ceil(bytes / 1024 ** 2)} MiB`;
