/**
 * The frontend that a Dockerfile asks for (`# syntax=`): an image that BuildKit runs and that decides what the build is. The
 * names of caches for each project are the frontend's work, so one that is not known could read and write another project's.
 */
import { TaskFailure } from './failures.ts';

const OFFICIAL = /^(?:docker\.io\/)?docker\/dockerfile(?::([\w.-]+))?$/;
/** `BUILDKIT_CACHE_MOUNT_NS` is of 2019: 1.2 is the first minor version that has it in all releases. */
const isOld = (tag: string): boolean => /^(0|1\.[01])([.-]|$)/.test(tag);

/**
 * As BuildKit looks for it: a directive in `#` or `//` comments at the beginning, or a field of JSON. Here any comment before
 * the first instruction counts, so that no form is missed.
 */
export function syntaxOf(dockerfile: string): string | null {
  const text = dockerfile.replace(/^\u{FEFF}/u, '');
  if (/^\s*\{/.test(text)) return syntaxOfJson(text);
  for (const line of text.split(/\r?\n|\r/)) {
    const content = line.trim();
    if (content === '') continue;
    if (!/^(#|\/\/)/.test(content)) return null;
    const found = firstWord(/^(?:#|\/\/)\s*syntax\s*=\s*(.+)$/i.exec(content)?.[1]);
    if (found !== null) return found;
  }
  return null;
}
/** Never null: a Dockerfile that is JSON is for a frontend of its own, whatever its fields are. */
function syntaxOfJson(text: string): string {
  let found: unknown[] = [];
  try {
    // BuildKit reads names of fields in any case.
    found = Object.entries(JSON.parse(text) as object).flatMap(([name, value]) => (name.toLowerCase() === 'syntax' ? [value] : []));
  } catch {
    // No JSON for us may be some for BuildKit.
  }
  const [value] = found;
  return (found.length === 1 && typeof value === 'string' ? firstWord(value) : null) ?? '(a document in JSON)';
}
const firstWord = (text: string | undefined): string | null => text?.trim().split(/\s/)[0] || null;

/** `allowed`: names of further images, or whole references. TaskFailure build_frontend_refused. */
export function checkFrontend(dockerfile: string, allowed: readonly string[]): void {
  const reference = syntaxOf(dockerfile);
  if (reference === null) return;
  const tag = OFFICIAL.exec(reference);
  if (tag !== null && !isOld(tag[1] ?? '')) return;
  const [, name = ''] = /^([^@]*?)(?::[\w.-]+)?(?:@.*)?$/.exec(reference) ?? [];
  if (allowed.includes(reference) || (!reference.includes('@') && allowed.includes(name))) return;
  throw new TaskFailure(
    'build_frontend_refused',
    `${reference.slice(0, 300)}. Allowed are docker/dockerfile from version 1.2, by its tag, and what BUILD_FRONTENDS of the builder names`,
  );
}
