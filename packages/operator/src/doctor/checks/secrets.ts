/**
 * Checks that only the process that uses a secret can read its file, that the file is not empty,
 * and that SECRETS_KEY decrypts the stored secrets.
 */
import { dirname, join } from 'node:path';
import { type Check, type Context, logOf } from '../check.ts';
import { finding, notChecked, ok, type Result } from '../result.ts';
import { type InstalledRole, pathHere, type MachineRole } from '../roles.ts';

const USERS: Partial<Record<MachineRole, string>> = {
  'control-plane': 'berth',
  gateway: 'berth-gateway',
  registry: 'berth-registry',
  proxy: 'berth-proxy',
  agent: 'root',
};
/** User id of every process in the image. */
const COMPOSE_UID = 10_001;
const IS_SECRET = /(_SECRET|_PASSWORD|_TOKEN|SECRETS_KEY|_KEY)$/;

export const SECRETS: Check = {
  name: 'secrets',
  roles: ['control-plane', 'gateway', 'registry', 'proxy', 'relay', 'agent'],
  async run(context) {
    const results = (
      await Promise.all(context.instances.map((one) => checkInstance(context, one)))
    ).flat();
    const files =
      results.length === 0
        ? [ok('the files of secrets are readable by their processes alone')]
        : results;
    const keys = await Promise.all(
      context.instances
        .filter(({ role }) => role === 'control-plane')
        .map((one) => checkKey(context, one)),
    );
    return [...files, ...keys];
  },
};

async function checkInstance({ system }: Context, instance: InstalledRole): Promise<Result[]> {
  const { settings, how, role, file } = instance;
  if (how === 'environment') return [];
  const uid = how === 'compose' ? COMPOSE_UID : await uidOf({ system }, USERS[role]);
  const results: Result[] = [];
  for (const [name, value] of settings) {
    if (name.endsWith('_FILE') && IS_SECRET.test(name.slice(0, -5)) && value !== '') {
      const path = pathHere(instance, value);
      if (path !== null)
        results.push(...(await checkFile({ system }, { name, path, uid, instance })));
    }
  }
  const inline =
    how === 'package' &&
    [...settings].some(([name, value]) => IS_SECRET.test(name) && value !== '');
  const access = inline && file !== null ? await system.stat(file) : undefined;
  if (access !== undefined && (access.mode & 0o007) !== 0)
    results.push(
      finding(
        `${file} holds a secret, and every user of this machine can read it`,
        'a user of this machine can act as Berth',
        `chown root:root ${file} && chmod 0600 ${file}; then replace the secret: berth rotate ` +
          'NAME (docs/rotate.md)',
      ),
    );
  return results;
}

type SecretFile = { name: string; path: string; uid: number | undefined; instance: InstalledRole };
async function checkFile(
  { system }: Pick<Context, 'system'>,
  { name, path, uid, instance }: SecretFile,
): Promise<Result[]> {
  const consequence = `${instance.name} does not start, or keeps its old secret`;
  try {
    const access = await system.stat(path);
    if (access === undefined)
      return [
        finding(
          `${instance.name}: ${name} names ${path}, which does not exist`,
          consequence,
          name === 'SECRETS_KEY_FILE'
            ? 'put the key back (docs/disasters.md "The key is gone"); do not make a new one'
            : `put the file back from a backup, or run: berth install ${instance.role}`,
        ),
      ];
    const folder = await system.stat(dirname(path));
    const results: Result[] = [];
    if ((access.mode & 0o077) !== 0 && ((folder?.mode ?? 0o777) & 0o077) !== 0)
      results.push(
        finding(
          `${path} has mode ${access.mode.toString(8).padStart(4, '0')}: other users of this ` +
            'machine can read it',
          'a user of this machine can act as Berth',
          `chmod 0700 ${dirname(path)} && chmod 0600 ${path}; then replace the secret: berth ` +
            'rotate NAME (docs/rotate.md)',
        ),
      );
    // Root can read every file.
    if (uid !== undefined && uid !== 0 && access.uid !== uid)
      results.push(
        finding(
          `${path} belongs to user ${access.uid}; ${instance.name} runs as user ${uid}`,
          consequence,
          `chown ${uid} ${path} ${dirname(path)}`,
        ),
      );
    if (((await system.read(path)) ?? '').trim() === '')
      results.push(
        finding(`${path} is empty`, consequence, 'put the secret into the file, in one line'),
      );
    return results;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return [
      notChecked(
        `${path}: ` +
          (code === 'EACCES' ? 'this user may not read it; run as root' : String(code ?? error)),
      ),
    ];
  }
}

async function uidOf(
  { system }: Pick<Context, 'system'>,
  user: string | undefined,
): Promise<number | undefined> {
  const line = ((await system.read('/etc/passwd')) ?? '')
    .split('\n')
    .find((one) => one.startsWith(`${user}:`));
  const uid = Number(line?.split(':')[2]);
  return user === undefined || line === undefined || Number.isNaN(uid) ? undefined : uid;
}

/**
 * Reads the part `secrets` of /readyz: the control plane tries its key on every project key, and
 * refuses to start if the key decrypts none of them.
 */
async function checkKey({ facts, system }: Context, instance: InstalledRole): Promise<Result> {
  const reached = await facts.readiness(instance);
  if ('problem' in reached) {
    const key = join('/var/lib/berth', 'secrets-key');
    const makesKey =
      instance.how === 'package' &&
      !instance.settings.has('SECRETS_KEY') &&
      !instance.settings.has('SECRETS_KEY_FILE');
    const isMissing = makesKey && (await system.stat(key).catch(() => null)) === undefined;
    const reason = `the control plane does not answer${isMissing ? `, and there is no ${key}` : ''}`;
    return notChecked(
      `whether the key of the secrets opens them: ${reason}; its log says it (SECRETS_KEY): ` +
        logOf(instance),
    );
  }
  const part = reached.value.parts.find(({ name }) => name === 'secrets');
  if (part === undefined)
    return notChecked('whether the key of the secrets opens them: /readyz does not say it');
  if (part.ok) return ok('the key of the secrets opens them');
  return finding(
    `the key of the secrets does not open all of them: ${part.detail}`,
    'deployments of these projects wait, and fail when their time is over',
    'set SECRETS_KEY to the key of the other control plane, or put the earlier key behind the ' +
      'present one (docs/secrets.md)',
  );
}
