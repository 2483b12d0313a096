/** The copies of a secret on this machine: one file for each process that reads the secret. */
import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { basename, dirname, isAbsolute, join } from 'node:path';
import { Problem } from '../lib/command.ts';
import {
  parseEnv,
  plainAccess,
  readPlain,
  readText,
  removeDrafts,
  writeText,
} from '../lib/etc-files.ts';
import type { RotatedSecret } from './names.ts';

/** Maximum number of values that the gateway accepts. */
const MOST_VALUES = 8;
/** The folder where a package installation (deploy/systemd) has its generated secrets. */
const STATE = '/var/lib/berth';
const GENERATED: Readonly<Record<string, string>> = {
  JWT_SECRET: 'jwt-secret',
  SECRETS_KEY: 'secrets-key',
};

export type Copy = {
  /** Process name as in its file names: control-plane, gateway, agent, agent-builder. */
  process: string;
  path: string;
  /** All values; the current one is first. */
  values: readonly string[];
};

/** Returns the copies. Throws a Problem if a setting is not in a file, or the file is invalid. */
export function findCopies(etc: string, secret: RotatedSecret): Copy[] {
  const processByPath = new Map<string, string>();
  for (const name of processesIn(etc)) {
    const env = parseEnv(readText(join(etc, `${name}.env`)) ?? '');
    if ((env.get(secret.setting) ?? '') !== '') throw inline(etc, name, secret);
    const file = env.get(`${secret.setting}_FILE`) ?? '';
    const path = pathHere(file, join(etc, 'secrets', name, secret.setting));
    if (path !== '')
      processByPath.set(
        existsSync(path) ? join(realpathSync(dirname(path)), basename(path)) : path,
        name,
      );
    else if (name === 'control-plane') {
      const generated = generatedFile(env, secret);
      if (generated !== null) processByPath.set(generated, name);
    }
  }
  return [...processByPath].map(([path, process]) => ({
    process,
    path,
    values: read(path, secret),
  }));
}

/**
 * Returns the path of a secret on this machine, which can differ from the path in the container.
 */
function pathHere(file: string, usual: string): string {
  if (file !== '' && existsSync(file)) return file;
  return existsSync(usual) ? usual : file;
}

function processesIn(etc: string): string[] {
  const names = (folder: string): string[] => (existsSync(folder) ? readdirSync(folder) : []);
  const fromEnv = names(etc).flatMap(
    (name) => /^((?:control-plane|gateway|agent)(?:-[\w-]+)?)\.env$/.exec(name)?.[1] ?? [],
  );
  const fromSecrets = names(join(etc, 'secrets')).filter((name) =>
    /^(control-plane|gateway|agent(-[\w-]+)?)$/.test(name),
  );
  return [...new Set([...fromEnv, ...fromSecrets])].sort();
}

function generatedFile(
  env: ReadonlyMap<string, string>,
  { setting }: RotatedSecret,
): string | null {
  const file = GENERATED[setting];
  if (file === undefined) return null;
  const path = join(dataFolder(env), file);
  return existsSync(path) ? path : null;
}

/**
 * Returns the folder of the SQLite file, or STATE_DIR (control-plane/src/config.ts, with the
 * defaults of the package's unit).
 */
export function dataFolder(env: ReadonlyMap<string, string>): string {
  const url = env.get('DATABASE_URL') ?? `sqlite:${STATE}/berth.db`;
  const folder = url.startsWith('sqlite:')
    ? dirname(url.slice('sqlite:'.length))
    : (env.get('STATE_DIR') ?? STATE);
  return isAbsolute(folder) ? folder : join(STATE, folder);
}

function inline(etc: string, name: string, { setting }: RotatedSecret): Problem {
  const file = join(etc, 'secrets', name, setting);
  return new Problem(
    `${setting} is in ${etc}/${name}.env itself, and a running process cannot read its ` +
      `environment again. Move it to a file once: write the value to ${file} (mode 0600, owned ` +
      `by the user of the process; the folder 0700), replace the line ${setting}=… by ` +
      `${setting}_FILE=${file}, and restart berth-${name}. Then run this again`,
  );
}

/** Parses the values in a text. `what` names the text in errors, which never contain a value. */
export function valuesIn(text: string, what: string, { setting }: RotatedSecret): string[] {
  const values = text
    .replace(/\r?\n$/, '')
    .split(',')
    .map((value) => value.trim())
    .filter((value) => value !== '');
  if (values.length === 0) throw new Problem(`${what} has no value of ${setting}`);
  if (values.some((value) => /\p{Cc}/u.test(value)))
    throw new Problem(
      `${what} has a value with a line break or another control character; separate values ` +
        'with commas',
    );
  if (values.length > MOST_VALUES)
    throw new Problem(`${what} has ${values.length} values; the maximum is ${MOST_VALUES}`);
  if (
    setting === 'SECRETS_KEY' &&
    values.some(
      (value) =>
        Buffer.from(value, 'base64').toString('base64') !== value ||
        Buffer.from(value, 'base64').length !== 32,
    )
  )
    throw new Problem(`${what} has a key that is not 32 bytes in base64`);
  if (setting === 'SESSION_SECRET' && values.some((value) => value.length < 32))
    throw new Problem(`${what} has a value of fewer than 32 characters`);
  if (new Set(values).size !== values.length) throw new Problem(`${what} has a value twice`);
  return values;
}

function read(path: string, secret: RotatedSecret): string[] {
  const text = readPlain(path);
  if (text === undefined)
    throw new Problem(
      `${path} is missing, and a setting names it: ${secret.setting} of a process on this machine`,
    );
  return valuesIn(text, path, secret);
}

/**
 * Replaces the file atomically and keeps its mode and owner. Returns false if the file already has
 * these values. If it throws a Problem, the file is unchanged.
 */
export function writeCopy({ path, values: before }: Copy, values: readonly string[]): boolean {
  if (before.join() === values.join()) return false;
  const access = plainAccess(path);
  if (access === undefined) throw new Problem(`${path} is missing`);
  for (const draft of removeDrafts(dirname(path)))
    if (existsSync(draft)) throw new Problem(`${draft} cannot be removed`);
  const text = `${values.join(',')}\n`;
  writeText(path, text, access);
  const after = plainAccess(path);
  if (
    readPlain(path) !== text ||
    after?.uid !== access.uid ||
    after.gid !== access.gid ||
    after.mode !== access.mode
  )
    throw new Problem(
      `${path} is not as it was written: another program changed it, or the file system cannot ` +
        'keep its owner and mode',
    );
  return true;
}
