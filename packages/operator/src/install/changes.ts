/**
 * Compares the files that `berth install` wants with the files of this machine. wanted.ts decides
 * what each role needs.
 */
import { createHash, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  type Access,
  draftsIn,
  hasAccess,
  makeFolder,
  parseEnv,
  plainAccess,
  readPlain,
  readText,
  removeDrafts,
  setPlainAccess,
  withVariables,
  writeText,
} from '../lib/etc-files.ts';
import { bcryptHash, isBcryptOf } from './bcrypt.ts';

/**
 * A secret in the file of one process. `env` and `name`: the environment file and the variable
 * where an operator might have set the secret instead.
 */
export type SecretCopy = { path: string; access: Access; env: string; name: string };

export type Wanted =
  | { kind: 'folder'; path: string; access: Access }
  /**
   * Values whose names are in `given` replace existing values; the others are written only if the
   * file lacks the variable.
   */
  | {
      kind: 'env';
      path: string;
      access: Access;
      values: Readonly<Record<string, string>>;
      given: ReadonlySet<string>;
    }
  /**
   * Files that contain the same secret. An existing value is copied to the other files; if no file
   * has a value, a new one is generated.
   */
  | { kind: 'secret'; files: SecretCopy[]; value?: string | undefined; make?: () => string }
  /** A password file for one user. The file `password` contains the user's password. */
  | { kind: 'htpasswd'; path: string; access: Access; user: string; password: string }
  /** A file that comes with Berth, from this path below deploy/. The operator's changes stay. */
  | { kind: 'shipped'; path: string; access: Access; from: string; text: string }
  /** A file that both Berth and the operator edit. */
  | { kind: 'edited'; path: string; access: Access; edit: (text: string | undefined) => string };

export type Change = { path: string; says: string; apply(): void };
export type Compared = {
  changes: Change[];
  /** Values of the operator that differ from the defaults of `berth install`. */
  kept: string[];
};
type Work = Compared & { secrets: Map<string, string>; shipped: Shipped };

/** Returns the changes to make. `record`: the file with the hashes of shipped files. */
export async function compare(
  wanted: readonly Wanted[],
  record: { path: string; access: Access },
): Promise<Compared> {
  const work: Work = { changes: [], kept: [], secrets: new Map(), shipped: openShipped(record) };
  for (const one of wanted) await compareOne(one, work);
  return { changes: work.changes, kept: work.kept };
}

/**
 * Applies the changes in order, each one atomically. After a killed run, the next run continues
 * with the remaining changes.
 */
export function apply(changes: readonly Change[], say: (line: string) => void): void {
  for (const change of changes) {
    change.apply();
    say(change.says);
  }
}

async function compareOne(one: Wanted, work: Work): Promise<void> {
  switch (one.kind) {
    case 'folder':
      return compareFolder(one, work);
    case 'env':
      return compareEnv(one, work);
    case 'secret':
      return compareSecret(one, work);
    case 'htpasswd':
      return compareHtpasswd(one, work);
    case 'shipped':
      return compareShipped(one, work);
    case 'edited': {
      const text = readText(one.path);
      return compareText(one, text, one.edit(text), work);
    }
  }
}

type OfKind<K extends Wanted['kind']> = Extract<Wanted, { kind: K }>;

function compareFolder({ path, access }: OfKind<'folder'>, { changes }: Work): void {
  if (!existsSync(path)) {
    changes.push({ path, says: `folder ${path}`, apply: () => makeFolder(path, access) });
    return;
  }
  if (draftsIn(path).length > 0)
    changes.push({
      path,
      says: `${path} without the drafts of a killed run`,
      apply: () => void removeDrafts(path),
    });
  if (!hasAccess(path, access))
    changes.push({
      path,
      says: `mode and owner of ${path}`,
      apply: () => makeFolder(path, access),
    });
}

/** Returns the name of a setting without `_FILE`, or undefined if it has no such suffix. */
const plainName = (name: string): string | undefined =>
  name.endsWith('_FILE') ? name.slice(0, -'_FILE'.length) : undefined;

function compareEnv({ path, access: wanted, values, given }: OfKind<'env'>, work: Work): void {
  const text = readText(path);
  // Keep a stricter mode that the operator set.
  const access =
    text === undefined
      ? wanted
      : { ...wanted, mode: wanted.mode & (plainAccess(path)?.mode ?? wanted.mode) };
  const there = parseEnv(text ?? '');
  const set: Record<string, string | undefined> = {};
  for (const [name, value] of Object.entries(values)) {
    const now = there.get(name);
    const plain = plainName(name);
    // Move the secret to its file: a process refuses a setting that is set twice.
    if (plain !== undefined && (there.get(plain) ?? '') !== '')
      Object.assign(set, { [plain]: undefined, [name]: value });
    else if (now === value) continue;
    else if (now === undefined || given.has(name)) set[name] = value;
    else work.kept.push(`${path}: ${name}=${now} (the default here is ${value})`);
  }
  const says = Object.entries(set).map(([name, value]) =>
    value === undefined ? `${name} moves to its file` : `${name}=${value}`,
  );
  if (text !== undefined && says.length === 0) return compareAccess(path, access, work);
  work.changes.push({
    path,
    says: says.length === 0 ? path : `${path}: ${says.join(' ')}`,
    apply: () => writeText(path, withVariables(text ?? '', set), access),
  });
}

function compareSecret({ files, value, make }: OfKind<'secret'>, work: Work): void {
  const texts = files.map(({ path }) => readPlain(path)?.trim() ?? '');
  const byHand = (): string => files.map(secretByHand).find((text) => text !== '') ?? '';
  const secret =
    value ?? ((texts.find((text) => text !== '') ?? byHand()) || (make ?? newSecret)());
  for (const [i, { path, access }] of files.entries()) {
    work.secrets.set(path, secret);
    if (texts[i] === secret) compareAccess(path, access, work);
    else
      work.changes.push({
        path,
        says: `secret ${path}`,
        apply: () => writeText(path, `${secret}\n`, access),
      });
  }
}

export const newSecret = (): string => randomBytes(32).toString('hex');

/** Returns the secret that the operator wrote into the environment file or into another file. */
function secretByHand({ path, env, name }: SecretCopy): string {
  const there = parseEnv(readText(env) ?? '');
  const file = there.get(`${name}_FILE`) ?? '';
  return (
    (there.get(name) ?? '') || (file === '' || file === path ? '' : (readText(file)?.trim() ?? ''))
  );
}

async function compareHtpasswd(
  { path, access, user, password }: OfKind<'htpasswd'>,
  work: Work,
): Promise<void> {
  const secret = work.secrets.get(password) ?? readPlain(password)?.trim() ?? '';
  const lines = (readPlain(path) ?? '').split('\n').filter((line) => line !== '');
  const mine = lines.find((line) => line.startsWith(`${user}:`));
  if (mine !== undefined && (await isBcryptOf(secret, mine.slice(user.length + 1))))
    return compareAccess(path, access, work);
  const others = lines.filter((line) => line !== mine);
  const text = [...others, `${user}:${await bcryptHash(secret)}`]
    .map((line) => `${line}\n`)
    .join('');
  work.changes.push({
    path,
    says: `password file ${path}`,
    apply: () => writeText(path, text, access),
  });
}

function compareText(
  { path, access }: { path: string; access: Access },
  before: string | undefined,
  after: string,
  work: Work,
): void {
  if (before === after) compareAccess(path, access, work);
  else work.changes.push({ path, says: path, apply: () => writeText(path, after, access) });
}

/** Maximum number of older hashes to keep for each file. */
const MOST_HASHES = 4;

/**
 * Stores the hashes of shipped files as they were written. If a file's hash is not stored, the
 * operator changed the file.
 */
type Shipped = { has(path: string, text: string): boolean; add(path: string, text: string): void };

function openShipped({ path: record, access }: { path: string; access: Access }): Shipped {
  const line = (path: string, text: string): string =>
    `${createHash('sha256').update(text).digest('hex')}  ${path}`;
  const lines = (): string[] => (readText(record) ?? '').split('\n').filter((one) => one !== '');
  return {
    has: (path, text) => lines().includes(line(path, text)),
    add(path, text) {
      const isOf = (one: string): boolean => one.endsWith(`  ${path}`);
      const earlier = lines().filter((one) => isOf(one) && one !== line(path, text));
      const others = lines().filter((one) => !isOf(one));
      writeText(
        record,
        [...others, ...earlier.slice(-MOST_HASHES), line(path, text)]
          .map((one) => `${one}\n`)
          .join(''),
        access,
      );
    },
  };
}

function compareShipped({ path, access, from, text }: OfKind<'shipped'>, work: Work): void {
  const now = readText(path);
  if (now === text) {
    compareAccess(path, access, work);
    return;
  }
  if (now !== undefined && !work.shipped.has(path, now)) {
    work.kept.push(
      `${path}: it has changes of your own; the file that comes with Berth is ` +
        `/usr/lib/berth/deploy/${from}`,
    );
    return;
  }
  work.changes.push({
    path,
    says: path,
    apply() {
      // Write the record before the file. The record has the hashes of the old and the new text, so
      // the next run recognises the file even after a kill.
      work.shipped.add(path, text);
      writeText(path, text, access);
    },
  });
}

function compareAccess(path: string, access: Access, { changes }: Work): void {
  const now = plainAccess(path);
  if (now?.mode === access.mode && now.uid === access.uid && now.gid === access.gid) return;
  changes.push({
    path,
    says: `mode and owner of ${path}`,
    apply: () => setPlainAccess(path, access),
  });
}
