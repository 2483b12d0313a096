/** Compares the wishes of `berth install` with the files of this machine. It does not decide what a role needs. */
import { randomBytes } from 'node:crypto';
import { existsSync, chmodSync, chownSync } from 'node:fs';
import { type Access, hasAccess, makeFolder, parseEnv, readText, removeDrafts, withVariables, writeText } from '../lib/etc-files.ts';

export type Wanted =
  | { kind: 'folder'; path: string; access: Access }
  /** `given`: flags or answers, which replace what is there. `defaults`: only where the file has no such variable. */
  | { kind: 'env'; path: string; access: Access; given: Record<string, string>; defaults: Record<string, string> }
  /** Files with the same secret. What one of them holds goes into the others; a new one is made where there is none. */
  | { kind: 'secret'; files: { path: string; access: Access }[]; value?: string };

export type Change = { path: string; says: string; apply(): void };
export type Compared = { changes: Change[] /** Values of the operator that `berth install` would write otherwise. */; kept: string[] };

export function compare(wanted: readonly Wanted[]): Compared {
  const found: Compared = { changes: [], kept: [] };
  for (const one of wanted) {
    if (one.kind === 'folder') compareFolder(one, found);
    else if (one.kind === 'env') compareEnv(one, found);
    else compareSecret(one, found);
  }
  return found;
}

/** Applies the changes in order, each whole. A run that was killed continues where it stopped. */
export function apply(changes: readonly Change[], say: (line: string) => void): void {
  for (const change of changes) {
    change.apply();
    say(change.says);
  }
}

function compareFolder({ path, access }: Extract<Wanted, { kind: 'folder' }>, { changes }: Compared): void {
  if (!existsSync(path)) changes.push({ path, says: `folder ${path}`, apply: () => makeFolder(path, access) });
  else {
    for (const draft of removeDrafts(path))
      changes.push({ path: draft, says: `removed ${draft}, which a killed run left`, apply: () => {} });
    if (!hasAccess(path, access)) changes.push({ path, says: `mode and owner of ${path}`, apply: () => makeFolder(path, access) });
  }
}

function compareEnv({ path, access, given, defaults }: Extract<Wanted, { kind: 'env' }>, { changes, kept }: Compared): void {
  const text = readText(path);
  const there = parseEnv(text ?? '');
  const set: Record<string, string> = {};
  for (const [name, value] of Object.entries({ ...defaults, ...given })) {
    const now = there.get(name);
    if (now === value) continue;
    if (now === undefined || name in given) set[name] = value;
    else kept.push(`${path}: ${name}=${now} (the default is ${value})`);
  }
  const names = Object.keys(set);
  if (text === undefined || names.length > 0) {
    changes.push({
      path,
      says: `${path}: ${names.map((name) => `${name}=${set[name]}`).join(' ')}`,
      apply: () => writeText(path, withVariables(text ?? '', set), access),
    });
  } else compareAccess(path, access, changes);
}

function compareSecret({ files, value }: Extract<Wanted, { kind: 'secret' }>, { changes }: Compared): void {
  const texts = files.map(({ path }) => readText(path)?.trim() ?? '');
  const secret = value ?? (texts.find((text) => text !== '') || randomBytes(32).toString('hex'));
  for (const [i, { path, access }] of files.entries()) {
    if (texts[i] === secret) compareAccess(path, access, changes);
    else changes.push({ path, says: `secret ${path}`, apply: () => writeText(path, `${secret}\n`, access) });
  }
}

function compareAccess(path: string, access: Access, changes: Change[]): void {
  if (hasAccess(path, access)) return;
  changes.push({
    path,
    says: `mode and owner of ${path}`,
    apply() {
      chownSync(path, access.uid, access.gid);
      chmodSync(path, access.mode);
    },
  });
}
