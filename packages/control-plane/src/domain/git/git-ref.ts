/**
 * Checks branch names by the rules of git-check-ref-format(1). Also rejects a name that git could
 * interpret as an option.
 */
import type { FieldProblem } from '../platform/errors.ts';

const FORBIDDEN = /[\p{Cc} ~^:?*[\\]/u;

const RULES: readonly { rule: string; message: string; broken: (name: string) => boolean }[] = [
  {
    rule: 'no_leading_dash',
    message: 'must not begin with a dash',
    broken: (n) => n.startsWith('-'),
  },
  {
    rule: 'ref_component',
    message: 'no part between slashes may begin with a dot or end with “.lock”',
    broken: (n) => n.split('/').some((c) => c.startsWith('.') || c.endsWith('.lock')),
  },
  { rule: 'ref_dots', message: 'must not contain “..”', broken: (n) => n.includes('..') },
  {
    rule: 'ref_characters',
    message: 'must not contain spaces, control characters or any of ~ ^ : ? * [ \\',
    broken: (n) => FORBIDDEN.test(n),
  },
  {
    rule: 'ref_slashes',
    message: 'must not begin or end with a slash or contain “//”',
    broken: (n) => n.startsWith('/') || n.endsWith('/') || n.includes('//'),
  },
  { rule: 'ref_end', message: 'must not end with a dot', broken: (n) => n.endsWith('.') },
  {
    rule: 'ref_at',
    message: 'must not be “@” or contain “@{”',
    broken: (n) => n === '@' || n.includes('@{'),
  },
  { rule: 'ref_head', message: '“HEAD” is not a branch', broken: (n) => n === 'HEAD' },
];

/** Returns the first violated rule, or null. */
export function branchProblem(name: string, field = 'branch'): FieldProblem | null {
  const broken = RULES.find((r) => r.broken(name));
  return broken === undefined ? null : { field, rule: broken.rule, message: broken.message };
}
