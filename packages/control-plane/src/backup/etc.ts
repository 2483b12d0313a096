/**
 * The settings of the machine (/etc/berth) in a backup. Files without secrets go into the manifest. Secret values, and the files of
 * `secrets/`, go into an own part of the archive, and only with --with-keys. The manifest names every file that is left out, and why.
 */
import { chmod, lstat, mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { BackupError, wordsOf } from './errors.ts';

const File = Type.Object({ path: Type.String(), mode: Type.Integer(), text: Type.String() });
type File = Static<typeof File>;
/** Part of the manifest. `left_out`: files that exist and are not in the backup as they are. */
export const EtcFiles = Type.Object({
  folder: Type.String(),
  files: Type.Array(File),
  left_out: Type.Array(Type.Object({ path: Type.String(), why: Type.String() })),
});
export type EtcFiles = Static<typeof EtcFiles>;
/** Files with secrets. */
export const EtcSecrets = Type.Array(File);
export type EtcSecrets = Static<typeof EtcSecrets>;

/** Larger files are no settings. */
const MOST_BYTES = 256 * 1024;
const MOST_FILES = 500;
const SECRETS = 'secrets/';
const WITH_KEYS = 'secret: only with --with-keys';

/** Reads the folder. A file that cannot be read is left out and named: this process often runs as another user than the file's owner. */
export async function readEtc(folder: string, withKeys: boolean): Promise<{ etc: EtcFiles; secrets: EtcSecrets } | null> {
  const etc: EtcFiles = { folder, files: [], left_out: [] };
  const secrets: EtcSecrets = [];
  const leaveOut = (path: string, why: string): void => void etc.left_out.push({ path, why });

  async function walk(relative: string): Promise<void> {
    const entries = await readdir(join(folder, relative), { withFileTypes: true });
    for (const entry of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = join(relative, entry.name);
      // Half-written files of a command that was killed.
      if (entry.name.endsWith('.tmp')) continue;
      try {
        if (entry.isDirectory()) await walk(path);
        else if (entry.isFile()) await add(path);
        else leaveOut(path, 'not a plain file');
      } catch (error) {
        leaveOut(path, wordsOf(error));
      }
    }
  }
  async function add(path: string): Promise<void> {
    const { mode, size } = await lstat(join(folder, path));
    if (size > MOST_BYTES) return leaveOut(path, `larger than ${MOST_BYTES / 1024} KiB`);
    if (etc.files.length + secrets.length >= MOST_FILES) return leaveOut(path, `more than ${MOST_FILES} files`);
    const isSecret = path.startsWith(SECRETS);
    if (isSecret && !withKeys) return leaveOut(path, WITH_KEYS);
    const bytes = await readFile(join(folder, path));
    const text = bytes.toString('utf8');
    if (!Buffer.from(text).equals(bytes)) return leaveOut(path, 'not a text');
    const file = { path, mode: mode & 0o777, text };
    if (withKeys && (isSecret || withoutSecrets(path, text) !== text)) return void secrets.push(file);
    const left = withoutSecrets(path, text);
    if (left === null) return leaveOut(path, WITH_KEYS);
    if (left !== text) leaveOut(path, `its secret values: only with --with-keys`);
    etc.files.push({ ...file, text: left });
  }
  try {
    await walk('');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    leaveOut('.', wordsOf(error));
  }
  return { etc, secrets };
}

/** Names of variables with secret values; those that end with _FILE name a file. */
const SECRET_NAME = /SECRET|PASSWORD|PASSWD|TOKEN|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_KEY|ENCRYPTION_KEY/i;
const NO_VALUE = /_(FILE|DIR|ID|URL|TTL|TIMEOUT)$/i;
const VARIABLE = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$/;
/** An address with a password, as DATABASE_URL may have. */
const WITH_PASSWORD = /:\/\/[^/\s:@]*:[^/\s@]+@/;
const SECRET_TEXT = /PRIVATE KEY|^\s*-?\s*["']?[\w-]*(secret|password|token|users)["']?\s*:/im;

/** Returns the text without secret values. Null: nothing is left of it. */
function withoutSecrets(path: string, text: string): string | null {
  if (!/(^|\/|\.)env$/.test(path)) return SECRET_TEXT.test(text) || WITH_PASSWORD.test(text) ? null : text;
  return text
    .split('\n')
    .map((line) => {
      const [, name, value = ''] = VARIABLE.exec(line) ?? [];
      // A comment may be an old value.
      const isComment = /^\s*#/.test(line) && (SECRET_NAME.test(line) || WITH_PASSWORD.test(line)) && line.includes('=');
      if (isComment) return '# (a comment that may have a secret is not in this backup)';
      const isEmpty = /^["']?["']?$/.test(value.trim());
      const isSecret = name !== undefined && !isEmpty && ((SECRET_NAME.test(name) && !NO_VALUE.test(name)) || WITH_PASSWORD.test(value));
      return isSecret ? `# ${name}= (a secret: not in this backup)` : line;
    })
    .join('\n');
}

/** Writes the files of a backup into `folder`, which must be missing or empty; otherwise into `beside`. Returns the folder, or null. */
export async function writeEtc(etc: EtcFiles | undefined, secrets: EtcSecrets, folder: string, beside: string): Promise<string | null> {
  const files = [...(etc?.files ?? []), ...secrets];
  if (files.length === 0) return null;
  const into = (await mayFill(folder)) ? folder : beside;
  if (into === beside && !(await mayFill(beside))) return null;
  for (const { path, mode, text } of files) {
    const at = join(into, path);
    await mkdir(dirname(at), { recursive: true, mode: path.startsWith(SECRETS) ? 0o700 : 0o750 });
    await writeFile(at, text, { flag: 'wx', mode: 0o600 });
    await chmod(at, mode & 0o777);
  }
  return into;
}

async function mayFill(folder: string): Promise<boolean> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o750 });
    if ((await readdir(folder)).length > 0) return false;
    const probe = join(folder, '.berth-probe');
    await mkdir(probe);
    await rmdir(probe);
    return true;
  } catch {
    return false;
  }
}

/** Paths come from a file that somebody may have changed. */
export function etcSecretsIn(json: unknown): EtcSecrets {
  if (!Value.Check(EtcSecrets, json)) throw new BackupError('damaged', 'its etc-secrets.json has another form');
  refuseOutside(json);
  return json;
}

export function refuseOutside(files: readonly { path: string }[]): void {
  const wrong = files.find(
    ({ path }) => path.startsWith('/') || path.split('/').some((part) => part === '..' || part === '' || part === '.'),
  );
  if (wrong !== undefined) throw new BackupError('damaged', `it has a settings file with the path “${wrong.path.slice(0, 100)}”`);
}
