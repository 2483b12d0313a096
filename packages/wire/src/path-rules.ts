/** Checks paths from users: in a repository, in a container, on the web and on the share. */
import type { BrokenRule } from './field-rules.ts';

const CONTROL = /\p{Cc}/u;
type Rule = { rule: string; message: string; broken: (path: string) => boolean };

const check = (rules: readonly Rule[], path: string, field: string): BrokenRule | null => {
  const broken = rules.find((r) => r.broken(path));
  return broken === undefined ? null : { field, rule: broken.rule, message: broken.message };
};

const SAFE: readonly Rule[] = [
  {
    rule: 'no_control',
    message: 'must not contain control characters',
    broken: (p) => CONTROL.test(p),
  },
  {
    rule: 'no_backslash',
    message: 'must not contain a backslash; parts are separated by “/”',
    broken: (p) => p.includes('\\'),
  },
  {
    rule: 'no_parent',
    message: 'must not contain a “..” part',
    broken: (p) => p.split('/').includes('..'),
  },
];

const BELOW_ROOT: readonly Rule[] = [
  {
    rule: 'no_leading_dash',
    message: 'must not begin with a dash',
    broken: (p) => p.startsWith('-'),
  },
  ...SAFE,
  {
    rule: 'relative',
    message: 'must be relative to the root of the repository',
    broken: (p) => p.startsWith('/') || /^[a-z]:/i.test(p),
  },
];
const IN_REPOSITORY: readonly Rule[] = [
  ...BELOW_ROOT,
  {
    rule: 'file',
    message: 'must name a file',
    broken: (p) => p.endsWith('/') || p.endsWith('/.') || p === '.' || p.trim() === '',
  },
];

/**
 * Checks the path of a file in the repository. The builder checks that no symlink leads outside the
 * repository.
 */
export const repoPathProblem = (path: string, field: string): BrokenRule | null =>
  check(IN_REPOSITORY, path, field);

const WATCHED: readonly Rule[] = [
  ...SAFE,
  {
    rule: 'relative',
    message: 'must be relative to the root of the repository',
    broken: (p) => p.startsWith('/'),
  },
  { rule: 'blank', message: 'must not be blank', broken: (p) => p.trim() === '' },
];

/** Checks a glob of `watch_paths`. */
export const watchPathProblem = (path: string, field: string): BrokenRule | null =>
  check(WATCHED, path, field);
const FOLDER: readonly Rule[] = [
  ...BELOW_ROOT,
  {
    rule: 'folder',
    message: 'must name a folder; “.” is the root of the repository',
    broken: (p) => p.trim() === '',
  },
];

/**
 * Checks the path of a folder in the repository. The builder checks that no symlink leads outside
 * the repository.
 */
export const repoFolderProblem = (path: string, field: string): BrokenRule | null =>
  check(FOLDER, path, field);

/** Paths on which a mount would break any container. */
const KERNEL = ['/proc', '/sys', '/dev'];
const IN_CONTAINER: readonly Rule[] = [
  { rule: 'absolute', message: 'must begin with “/”', broken: (p) => !p.startsWith('/') },
  ...SAFE,
  {
    rule: 'normal',
    message: 'must not contain “//” or a “.” part, nor end with “/”',
    broken: (p) => p.includes('//') || p.split('/').includes('.') || (p !== '/' && p.endsWith('/')),
  },
  {
    rule: 'mountable',
    message: 'must not be /, /proc, /sys or /dev or lie below those three',
    broken: (p) => p === '/' || KERNEL.some((k) => p === k || p.startsWith(`${k}/`)),
  },
  { rule: 'no_separator', message: 'must not contain “:” or “,”', broken: (p) => /[:,]/.test(p) },
];

export const mountPathProblem = (path: string, field: string): BrokenRule | null =>
  check(IN_CONTAINER, path, field);

const ON_THE_WEB: readonly Rule[] = [
  // `new URL('//host/x', base)` would address another host.
  { rule: 'path_only', message: 'must not begin with “//”', broken: (p) => p.startsWith('//') },
  { rule: 'no_fragment', message: 'must not contain “#”', broken: (p) => p.includes('#') },
  {
    rule: 'no_backslash',
    message: 'must not contain a backslash',
    broken: (p) => p.includes('\\'),
  },
];

export const healthPathProblem = (path: string, field: string): BrokenRule | null =>
  check(ON_THE_WEB, path, field);

const ON_THE_SHARE: readonly Rule[] = [
  {
    rule: 'no_control',
    message: 'must not contain control characters',
    broken: (p) => CONTROL.test(p),
  },
  {
    rule: 'absolute',
    message: 'must be relative to the shared storage and must not begin with “/”',
    broken: (p) => p.startsWith('/'),
  },
  {
    rule: 'dot_dot',
    message: 'must not contain a “..” part',
    broken: (p) => p.split('/').includes('..'),
  },
  {
    rule: 'outside',
    message: 'must name a folder below the shared storage, not the shared storage itself',
    broken: (p) => sharePath(p) === '',
  },
];

/**
 * Checks the path of a folder on the share. monitor/check-folder.ts checks on the disk that the
 * folder exists and that no symlink leads outside the share.
 */
export const nfsPathProblem = (path: string, field: string): BrokenRule | null =>
  check(ON_THE_SHARE, path, field);

/** Returns whether `path` is below `folder`, comparing whole path segments. */
export const liesInside = (path: string, folder: string): boolean => path.startsWith(`${folder}/`);

/** Normalizes a path: `./a//b/` becomes `a/b`. */
export const sharePath = (path: string): string =>
  path
    .split('/')
    .filter((part) => part !== '' && part !== '.')
    .join('/');
