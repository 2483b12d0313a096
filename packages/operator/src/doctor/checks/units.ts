/** Checks the state of each unit or container: not started, failed, or in a restart loop. */
import { dirname } from 'node:path';
import { type Check, composeCommand, type Context, failedRun, logOf, unitOf } from '../check.ts';
import { finding, notChecked, ok, type Result } from '../result.ts';
import { type InstalledRole, ROLES } from '../roles.ts';

const RUN_MS = 10_000;
/** A process is in a restart loop if it started this often and has run for less than this time. */
const RESTARTS = 3;
const STEADY_MS = 10 * 60_000;

export const UNITS: Check = {
  name: 'units',
  roles: ROLES,
  async run(context) {
    const composed = context.instances.filter(({ how }) => how === 'compose');
    const units = context.instances.filter(({ how }) => how === 'package');
    const parts = [...units.map((one) => checkUnit(context, one)), checkCompose(context, composed)];
    return (await Promise.all(parts)).flat();
  },
};

async function checkUnit({ system }: Context, instance: InstalledRole): Promise<Result[]> {
  const unit = unitOf(instance);
  const properties =
    'LoadState,ActiveState,SubState,UnitFileState,NRestarts,Result,ActiveEnterTimestamp';
  const ran = await system.run(
    ['systemctl', 'show', `--property=${properties}`, '--', `${unit}.service`],
    { timeoutMs: RUN_MS },
  );
  const why = failedRun('systemctl', ran);
  if (why !== null) return [notChecked(`the unit ${unit}: ${why}`)];
  const state = new Map(
    (ran?.stdout ?? '')
      .split('\n')
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  );
  const get = (name: string): string => state.get(name) ?? '';
  const down = `${instance.name} does not run`;
  if (get('LoadState') === 'not-found')
    return [notChecked(`${unit}: there is no such unit; something else starts ${instance.name}`)];
  if (get('ActiveState') === 'failed')
    return [
      finding(
        `${unit} failed (${get('Result')})`,
        down,
        `${logOf(instance)}; correct what it says, then: systemctl restart ${unit}`,
      ),
    ];
  const started = Date.parse(
    get('ActiveEnterTimestamp')
      .replace(/^\w+ /, '')
      .replace(/ (\w+)$/, ' $1'),
  );
  const isYoung = Number.isNaN(started) || system.now() - started < STEADY_MS;
  const loops = Number(get('NRestarts')) >= RESTARTS && isYoung;
  if (get('SubState') === 'auto-restart' || loops)
    return [
      finding(
        `${unit} restarts again and again (${get('NRestarts')} times)`,
        `${instance.name} is down most of the time: it ends soon after each start`,
        logOf(instance),
      ),
    ];
  if (get('ActiveState') === 'inactive')
    return [
      finding(
        `${unit} is not started, although this machine has its settings (${instance.file})`,
        down,
        `systemctl enable --now ${unit}`,
      ),
    ];
  if (get('ActiveState') !== 'active')
    return [
      notChecked(
        `${unit} is ${get('ActiveState')} (${get('SubState')}); run the doctor again in a moment`,
      ),
    ];
  if (get('UnitFileState') === 'disabled')
    return [
      finding(
        `${unit} runs, but does not start with the machine`,
        `after a restart of the machine ${down}`,
        `systemctl enable ${unit}`,
      ),
    ];
  return [ok(`${unit} runs`)];
}

type Container = {
  Service?: string;
  State?: string;
  Status?: string;
  Health?: string;
  ExitCode?: number;
};

async function checkCompose(
  { system }: Context,
  instances: readonly InstalledRole[],
): Promise<Result[]> {
  const file = instances[0]?.file;
  if (file === undefined || file === null) return [];
  const ran = await system.run(['docker', 'compose', 'ps', '--all', '--format', 'json'], {
    timeoutMs: RUN_MS,
    cwd: dirname(file),
  });
  const why = failedRun('docker compose ps', ran);
  if (why !== null) return [notChecked(`the containers of ${file}: ${why}`)];
  const containers = rowsOf(ran?.stdout ?? '');
  return instances.map((instance) => {
    const container = containers.find(({ Service }) => Service === instance.name);
    const down = `${instance.name} does not run`;
    const start = composeCommand({ file }, `up --detach ${instance.name}`);
    if (container === undefined)
      return finding(`${file}: there is no container of ${instance.name}`, down, start);
    if (container.State === 'restarting')
      return finding(
        `the container of ${instance.name} restarts again and again`,
        `${instance.name} is down most of the time: it ends soon after each start`,
        logOf(instance),
      );
    if (container.State !== 'running')
      return finding(
        `the container of ${instance.name} is ${container.State} (${container.Status})`,
        down,
        `${logOf(instance)}; then: ${start}`,
      );
    if (container.Health === 'unhealthy')
      return finding(
        `the container of ${instance.name} is unhealthy`,
        `${instance.name} does not answer its health check`,
        logOf(instance),
      );
    return ok(`the container of ${instance.name} runs`);
  });
}

/** Parses the output of compose: one array, or one object per line in other versions. */
const rowsOf = (text: string): Container[] =>
  text.trim().startsWith('[')
    ? (JSON.parse(text) as Container[])
    : text
        .split('\n')
        .flatMap((line) => (line.trim() === '' ? [] : [JSON.parse(line) as Container]));
