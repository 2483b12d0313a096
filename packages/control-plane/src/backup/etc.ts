/**
 * The settings of the machine (/etc/berth) in a backup. The manifest contains the files of `berth
 * install`, with only the variables that are known not to be secrets. With --with-keys, a separate
 * part of the archive contains everything else. The manifest lists what is omitted.
 */
import { lstat, mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '@berth/kit/message-of';
import { writeFileWhole } from '@berth/kit/write-file';
import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { BackupError } from './errors.ts';
import { isPlain } from './plain-settings.ts';

const File = Type.Object({ path: Type.String(), mode: Type.Integer(), text: Type.String() });
type File = Static<typeof File>;
/** Part of the manifest. `left_out`: files that are not in the backup, or not in full. */
export const EtcFiles = Type.Object({
  folder: Type.String(),
  files: Type.Array(File),
  left_out: Type.Array(Type.Object({ path: Type.String(), why: Type.String() })),
});
export type EtcFiles = Static<typeof EtcFiles>;
/** Files that contain secrets. */
export const EtcSecrets = Type.Array(File);
export type EtcSecrets = Static<typeof EtcSecrets>;

/** Limit for one file: a larger file is not a settings file. */
const MOST_BYTES = 256 * 1024;
const MOST_FILES = 500;
const SECRETS = 'secrets/';
const WITH_KEYS = 'secret: only with --with-keys';

/**
 * Reads the folder. Lists an unreadable file in `left_out`: this process often runs as a user who
 * is not the owner of the file.
 */
export async function readEtc(
  folder: string,
  withKeys: boolean,
): Promise<{ etc: EtcFiles; secrets: EtcSecrets } | null> {
  const etc: EtcFiles = { folder, files: [], left_out: [] };
  const secrets: EtcSecrets = [];
  const leaveOut = (path: string, why: string): void => void etc.left_out.push({ path, why });

  async function walk(relative: string): Promise<void> {
    const entries = await readdir(join(folder, relative), { withFileTypes: true });
    for (const entry of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = join(relative, entry.name);
      // Skips half-written files of a command that was killed.
      if (entry.name.endsWith('.tmp')) continue;
      try {
        if (entry.isDirectory()) await walk(path);
        else if (entry.isFile()) await add(path);
        else leaveOut(path, 'not a plain file');
      } catch (error) {
        leaveOut(path, messageOf(error));
      }
    }
  }
  async function add(path: string): Promise<void> {
    const { mode, size } = await lstat(join(folder, path));
    if (size > MOST_BYTES) return leaveOut(path, `larger than ${MOST_BYTES / 1024} KiB`);
    if (etc.files.length + secrets.length >= MOST_FILES)
      return leaveOut(path, `more than ${MOST_FILES} files`);
    // Checked before the read, because this process might not be allowed to read a secret file.
    if (path.startsWith(SECRETS) && !withKeys) return leaveOut(path, WITH_KEYS);
    const bytes = await readFile(join(folder, path));
    const text = bytes.toString('utf8');
    if (!Buffer.from(text).equals(bytes)) return leaveOut(path, 'not a text');
    const file = { path, mode: mode & 0o777, text };
    const cleaned = withoutSecrets(path, text);
    if (cleaned.text === text) return void etc.files.push(file);
    if (withKeys) return void secrets.push(file);
    leaveOut(path, cleaned.why);
    if (cleaned.text !== null) etc.files.push({ ...file, text: cleaned.text });
  }
  try {
    await walk('');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    leaveOut('.', messageOf(error));
  }
  return { etc, secrets };
}

/** Matches the environment files of `berth install` (packages/operator/src/install). */
const ENV_FILE = /^((control-plane|gateway|relay|proxy|registry|agent[\w-]*)\.env|compose\/\.env)$/;
/**
 * The other files of `berth install`. Copies, files of people and files of other programs are
 * excluded: they can contain anything.
 */
const YAML_FILE =
  /^(registry\.yml|compose\/compose\.yml|(compose\/)?traefik\/(traefik|dynamic\/(middlewares|auth-host|dashboard|registry))\.yml)$/;
/**
 * Matches secrets that a person might have added to YAML files. Values such as `${NAME}`, paths
 * (`…_FILE: /run/…`) and the empty text, which removes a header, are not secrets.
 */
const SECRET_IN_YAML =
  /PRIVATE KEY|:\/\/[^\s"'/]*@|:\/\/[^\s"'@]*:[^\s"'@]*@|(^[\s#-]*|[{,]\s*)["']?[\w.-]*(secret|(?<!ht)passw(or)?d|token|users|authorization|credential|cookie|(api|access|private|secret)[_-]?key)["']?\s*[:=](?![ \t]*""[ \t]*$)/im;
const ASSIGNMENT = /^\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)$/;
/** Matches a value that is complete on its line. */
const ONE_LINE = /^(?:[^"'\\]*|"(?:[^"\\]|\\.)*"|'[^']*')$/;

type Filtered = { text: string | null; why: string };

/**
 * Returns the text without secrets. `text` is null if no part of the file can be in a backup
 * without keys.
 */
function withoutSecrets(path: string, text: string): Filtered {
  const out = (why: string): Filtered => ({ text: null, why: `${why}: only with --with-keys` });
  if (path.startsWith(SECRETS)) return { text: null, why: WITH_KEYS };
  if (YAML_FILE.test(path))
    return SECRET_IN_YAML.test(text) ? { text: null, why: WITH_KEYS } : { text, why: '' };
  if (!ENV_FILE.test(path))
    return out('berth install does not make this file, so it may have secrets');
  const kept: string[] = [];
  for (const line of text.split('\n')) {
    const isComment = /^\s*[#;]/.test(line);
    const [, name = '', rest] = ASSIGNMENT.exec(line) ?? [];
    const value = rest?.trim() ?? '';
    // In a value over several lines, a line can look like an assignment to another variable.
    if (!isComment && line.trim() !== '' && (rest === undefined || !ONE_LINE.test(value)))
      return out('it has a line that is no assignment with its whole value');
    const bare = /^["']/.test(value) ? value.slice(1, -1) : value;
    // Omits comments, because a comment can contain an old value.
    if (
      line.trim() === '' ||
      (rest !== undefined && !isComment && (bare === '' || isPlain(name, bare)))
    )
      kept.push(line);
  }
  const keptText = kept.join('\n');
  return keptText === text
    ? { text, why: '' }
    : {
        text: keptText,
        why: 'its comments and its secret or unknown variables: only with --with-keys',
      };
}

/**
 * Writes the files of a backup into the new folder `beside`, never into /etc/berth: its variables
 * decide which programs root runs, and the author of a backup must not become root. Returns the
 * folder, or null if the folder already exists or there is no file to write.
 */
export async function writeEtc(
  etc: EtcFiles | undefined,
  secrets: EtcSecrets,
  beside: string,
): Promise<string | null> {
  const files = [...(etc?.files ?? []), ...secrets];
  if (files.length === 0) return null;
  try {
    // Not recursive, so that mkdir also refuses a symlink to another folder.
    await mkdir(beside, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return null;
    throw error;
  }
  for (const { path, text } of files) {
    const at = join(beside, path);
    await writeFileWhole(at, text, { exclusive: true, folderMode: 0o700 });
  }
  return beside;
}

/** Parses `etc-secrets.json` and checks its paths: somebody might have changed the file. */
export function etcSecretsIn(json: unknown): EtcSecrets {
  if (!Value.Check(EtcSecrets, json))
    throw new BackupError('damaged', 'its etc-secrets.json has another form');
  refuseOutside(json);
  return json;
}

export function refuseOutside(files: readonly { path: string }[]): void {
  const wrong = files.find(
    ({ path }) =>
      path.startsWith('/') ||
      path.split('/').some((part) => part === '..' || part === '' || part === '.'),
  );
  if (wrong !== undefined)
    throw new BackupError(
      'damaged',
      `it has a settings file with the path “${wrong.path.slice(0, 100)}”`,
    );
}
