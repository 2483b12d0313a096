/** Sentences about what a builder found, and the proposals of the form. */
import type { RepositoryFound, RepositoryLook } from '@berth/wire/repository-look';
import { expect, it } from 'vitest';
import { diffText } from '../src/pages/dataset.tsx';
import { lookText, proposedDockerfile } from '../src/parts/repository.tsx';

const FOUND: RepositoryFound = {
  default_branch: 'main',
  branches: ['main'],
  branches_left_out: 0,
  branch: 'main',
  commit: 'a'.repeat(40),
  dockerfiles: [{ path: 'Dockerfile', ports: [80], targets: [] }],
  dockerfiles_left_out: 0,
  submodules: false,
  lfs: false,
};
const LOOK: RepositoryLook = {
  id: 'l',
  state: 'done',
  git_url: 'u',
  branch: null,
  requested_at: '',
  found: FOUND,
  error: null,
};
const textOf = (look: Partial<RepositoryLook>): string =>
  lookText({ url: 'u', branch: look.branch ?? null, kind: 'look', look: { ...LOOK, ...look } });

it.each<[Partial<RepositoryLook>, string]>([
  [{}, 'Found 1 branch and, on main, 1 Dockerfile.'],
  [
    { found: { ...FOUND, branches_left_out: 1_300, dockerfiles_left_out: 4 } },
    'Found 1,301 branches and, on main, 5 Dockerfiles.',
  ],
  [
    { found: { ...FOUND, dockerfiles: [], submodules: true } },
    'Found 1 branch and, on main, no Dockerfile. It has submodules.',
  ],
  [{ branch: 'x', found: { ...FOUND, branch: null } }, 'The repository has no branch x.'],
  [
    { found: { ...FOUND, branches: [], branch: null } },
    'The repository is empty: it has no branch.',
  ],
  [
    { found: null, error: { code: 'git_timeout', message: 'Too slow.' } },
    'The builder could not read the repository. Too slow.',
  ],
  [
    { id: null, found: null, unavailable: 'no builder is online' },
    'What the repository has is not known: no builder is online. Fill in the form yourself.',
  ],
])('says in one sentence: %j', (look, text) => expect(textOf(look)).toBe(text));

it('proposes the file named Dockerfile that is nearest to the root, else the first one', () => {
  const files = (...paths: string[]) => ({
    ...FOUND,
    dockerfiles: paths.map((path) => ({ path, ports: [], targets: [] })),
  });
  expect(
    proposedDockerfile(files('Dockerfile.dev', 'web/Dockerfile', 'api/Dockerfile'))?.path,
  ).toBe('web/Dockerfile');
  expect(proposedDockerfile(files('a.dockerfile'))?.path).toBe('a.dockerfile');
  expect(proposedDockerfile(files())).toBeUndefined();
});

it('says how two versions differ', () => {
  const none = { files: 0, bytes: 0 };
  const totals = {
    added: none,
    modified: { ...none, previous_bytes: 0 },
    removed: none,
    complete: true,
  };
  expect(diffText(totals)).toBe('The two versions have the same files.');
  const more = {
    ...totals,
    added: { files: 1, bytes: 2_048 },
    removed: { files: 3, bytes: 0 },
    complete: false,
  };
  expect(diffText(more)).toBe(
    'At least 1 file added (2.0 KiB), 0 modified (0 B before, 0 B now), 3 removed (0 B). There ' +
      'are more differences than Berth lists.',
  );
});
