/** `berth doctor`: checks all roles of this machine in parallel, each check with a deadline. */
import { parseArgs } from 'node:util';
import { messageOf } from '@berth/kit/message-of';
import { WrongUsage } from '@berth/kit/wrong-usage';
import { print, Problem, runCommand } from '../lib/command.ts';
import { ETC } from '../lib/etc-files.ts';
import { type Check, createFacts } from './check.ts';
import { CHECKS } from './checks/table.ts';
import { type Checked, hasFindings, jsonReport, textReport } from './report.ts';
import { notChecked, type Result } from './result.ts';
import {
  findRoles,
  type InstalledRole,
  instanceFromEnvironment,
  type MachineRole,
  ROLES,
} from './roles.ts';
import { type System, thisMachine } from './system.ts';

export const USAGE = `Usage: berth doctor [ROLE] [--json]

Checks this machine and says for each finding what is wrong, what it causes and what to do. Without ROLE,
it checks every role that this machine has settings for: ${ETC}, or the compose project there. Where
neither exists, the settings of the role come from the environment.

  ROLE     ${ROLES.join(', ')}
  --json   prints one JSON object: roles, findings, not_checked, notes, ok

Exit code: 0 without findings, 1 with findings, 2 for wrong usage. What could not be checked is listed and is no finding.
Run it as root: otherwise it cannot see secrets, programs of other users and some folders.`;

/** Deadline of a check in ms; longer than the deadline of each part of a check. */
const CHECK_MS = 30_000;

export const runDoctor = (args: string[]): Promise<number> =>
  runCommand('doctor', USAGE, args, () => doctor(args, thisMachine(), ETC));

export async function doctor(
  args: string[],
  system: System,
  etc: string,
  checks: readonly Check[] = CHECKS,
): Promise<number> {
  const { positionals, values } = parseArgs({
    args,
    allowPositionals: true,
    options: { json: { type: 'boolean' } },
  });
  const [role, ...more] = positionals;
  if (more.length > 0) throw new WrongUsage('name at most one role');
  if (role !== undefined && !(ROLES as readonly string[]).includes(role))
    throw new WrongUsage(`unknown role “${role}”`);
  const { instances, problems } = await findRoles(system, etc);
  const wanted = role === undefined ? instances : ofRole(role as MachineRole, instances, system);
  if (wanted.length === 0 && problems.length === 0)
    throw new Problem(nothingToCheck(role, instances, etc));
  const checked = await runChecks(checks, {
    system,
    wanted,
    all: instances.length === 0 ? wanted : instances,
  });
  if (problems.length > 0)
    checked.unshift({ check: 'settings', results: problems.map(notChecked) });
  const names = wanted.map(({ name }) => name);
  print(
    values.json === true
      ? jsonReport(names, checked)
      : textReport(names, checked, Math.max(60, process.stdout.columns ?? 100)),
  );
  return hasFindings(checked) ? 1 : 0;
}

/**
 * Says which roles this machine has and which command to run. A clone without settings, or a
 * machine without the role, is not wrong usage.
 */
function nothingToCheck(
  role: string | undefined,
  here: readonly InstalledRole[],
  etc: string,
): string {
  if (role !== undefined && here.length > 0)
    return (
      `this machine has no settings of ${role}; it has ` +
      `${here.map(({ name }) => name).join(', ')}. Run berth doctor for these, or berth install ` +
      '--help to add a role'
    );
  return (
    `this machine has no settings of Berth in ${etc} or in the environment, so there is nothing ` +
    'to check.\n' +
    `  The roles are ${ROLES.join(', ')}. On a machine of an installation, run: sudo berth ` +
    'doctor\n' +
    '  In a clone, set the environment of a process and name its role: berth doctor ROLE\n' +
    '  For a new installation: sudo berth install all --dry-run, which lists what this machine ' +
    'lacks'
  );
}

/**
 * Returns the instances of a role. If the operator names a role that has no settings file, its
 * settings come from the environment.
 */
function ofRole(
  role: MachineRole,
  instances: readonly InstalledRole[],
  system: System,
): InstalledRole[] {
  const instancesOfRole = instances.filter((one) => one.role === role);
  return instancesOfRole.length > 0 || instances.some(({ how }) => how !== 'environment')
    ? instancesOfRole
    : [instanceFromEnvironment(role, system.env)];
}

type Machine = { system: System; wanted: readonly InstalledRole[]; all: readonly InstalledRole[] };

export async function runChecks(
  checks: readonly Check[],
  { system, wanted, all }: Machine,
): Promise<Checked[]> {
  const facts = createFacts(system);
  const checked = checks.map(async (check): Promise<Checked> => {
    const instances = wanted.filter(({ role }) => check.roles.includes(role));
    if (instances.length === 0) return { check: check.name, results: [] };
    return {
      check: check.name,
      results: merged(await inTime(check, check.run({ system, instances, all, facts }))),
    };
  });
  return Promise.all(checked);
}

/**
 * Merges equal findings and joins their consequences, for example of two agents with one engine.
 */
function merged(results: readonly Result[]): Result[] {
  const resultByKey = new Map<string, Result>();
  for (const one of results) {
    const key = `${one.state} ${one.state === 'finding' ? one.problem : one.text}`;
    const before = resultByKey.get(key);
    const isNew =
      before?.state === 'finding' &&
      one.state === 'finding' &&
      !before.consequence.includes(one.consequence);
    resultByKey.set(
      key,
      isNew
        ? { ...before, consequence: `${before.consequence}; ${one.consequence}` }
        : (before ?? one),
    );
  }
  return [...resultByKey.values()];
}

/** Runs a check. If it fails or hangs, the result is `not_checked`. */
async function inTime({ name }: Check, running: Promise<Result[]>): Promise<Result[]> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Result[]>((resolve) => {
    timer = setTimeout(
      () => resolve([notChecked(`${name}: the check did not finish within ${CHECK_MS / 1000} s`)]),
      CHECK_MS,
    );
  });
  const guarded = running.catch((error: unknown) => [
    notChecked(`${name}: the check failed: ${messageOf(error)}`),
  ]);
  try {
    return await Promise.race([guarded, late]);
  } finally {
    clearTimeout(timer);
  }
}
