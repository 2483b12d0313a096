/**
 * Checks the frontend that a Dockerfile requests (`# syntax=`). A frontend is an image that
 * BuildKit runs and that defines the build. It also chooses the names of cache mounts, so an
 * unknown frontend could read and write the caches of other projects.
 */
import { TaskFailure } from '../failures.ts';

const OFFICIAL = /^(?:docker\.io\/)?docker\/dockerfile(?::([\w.-]+))?$/;
/**
 * Version 1.2 is the first minor version in which all releases support `BUILDKIT_CACHE_MOUNT_NS`.
 */
const isOld = (tag: string): boolean => /^(0|1\.[01])([.-]|$)/.test(tag);

/**
 * Finds the requested frontend: a directive in a `#` or `//` comment at the beginning, or a JSON
 * field. BuildKit is stricter. Here any comment before the first instruction counts, so that no
 * form is missed.
 */
export function syntaxOf(dockerfile: string): string | null {
  const text = dockerfile.replace(/^\u{FEFF}/u, '');
  const lines = text.split(/\r?\n|\r/);
  for (const [at, line] of lines.entries()) {
    const content = line.trim();
    if (content === '') continue;
    // A `#!…` line can precede JSON. No instruction begins with a brace.
    if (content.startsWith('{')) return syntaxOfJson(lines.slice(at).join('\n'));
    if (!/^(#|\/\/)/.test(content)) return null;
    const frontend = firstWord(/^(?:#|\/\/)\s*syntax\s*=\s*(.+)$/i.exec(content)?.[1]);
    if (frontend !== null) return frontend;
  }
  return null;
}
/**
 * Returns the frontend of a Dockerfile in JSON; never null, because a Dockerfile in JSON always
 * names its frontend.
 */
function syntaxOfJson(text: string): string {
  let syntaxes: unknown[] = [];
  try {
    // BuildKit ignores the case of field names.
    syntaxes = Object.entries(JSON.parse(text) as object).flatMap(([name, value]) =>
      name.toLowerCase() === 'syntax' ? [value] : [],
    );
  } catch {
    // Continue: BuildKit can accept JSON that this parser refuses.
  }
  const [value] = syntaxes;
  return (
    (syntaxes.length === 1 && typeof value === 'string' ? firstWord(value) : null) ??
    '(a document in JSON)'
  );
}
const firstWord = (text: string | undefined): string | null => text?.trim().split(/\s/)[0] || null;

/**
 * Refuses a frontend that is neither official nor in `allowed` (image names or full references).
 * Throws TaskFailure build_frontend_refused.
 */
export function checkFrontend(dockerfile: string, allowed: readonly string[]): void {
  const reference = syntaxOf(dockerfile);
  if (reference === null) return;
  const tag = OFFICIAL.exec(reference);
  if (tag !== null && !isOld(tag[1] ?? '')) return;
  const [, name = ''] = /^([^@]*?)(?::[\w.-]+)?(?:@.*)?$/.exec(reference) ?? [];
  if (allowed.includes(reference) || (!reference.includes('@') && allowed.includes(name))) return;
  throw new TaskFailure(
    'build_frontend_refused',
    `${reference.slice(0, 300)}. Use docker/dockerfile with a tag of 1.2 or newer, or add the ` +
      'frontend to BUILD_FRONTENDS of the builder',
  );
}
