/**
 * Finds the project of a command, in this order: the argument, `--project`, `.berth.json`, the git
 * remote of the folder.
 */
import { ApiError } from '@berth/wire/client';
import type { Project } from '@berth/wire/project';
import type { Io } from '../io.ts';
import { CliError, EXIT, refused, usage } from '../problem.ts';
import { readLink } from '../session/choose.ts';
import type { Session } from '../session/session.ts';
import { allPages } from './pages.ts';
import { readRepository, type Repository, repositoryKey, whyNoRepository } from './git.ts';

export type Selected = { project: Project; how: 'argument' | 'link' | 'remote' };

/**
 * Throws CliError: `usage` if no project or several projects match, `refused` if the named project
 * does not exist.
 */
export async function selectProject(
  io: Io,
  session: Session,
  named: string | undefined,
): Promise<Selected> {
  if (named !== undefined) return { project: await getProject(session, named), how: 'argument' };
  const link = readLink(io.cwd);
  // A link counts only for the Berth address that it names.
  if (link !== null && link.url === session.url)
    return { project: await getProject(session, link.project, link.path), how: 'link' };
  const repository = await readRepository(io);
  const matches = repository === null ? [] : await matchRemote(session, repository);
  const [project] = matches;
  if (project !== undefined && matches.length === 1) return { project, how: 'remote' };
  if (matches.length > 1)
    throw usage(
      `several projects build from this repository: ${matches.map((p) => p.name).join(', ')}`,
      `name one, or link this folder: berth link ${project?.name}`,
    );
  const { said, next } =
    repository === null ? await whyNoRepository(io) : whyNoMatch(session, repository);
  throw new CliError(EXIT.usage, 'no_project', `no project was named, and ${said}`, { next });
}

/** Returns the project of a command; null if none is named and the folder belongs to none. */
export async function projectOrNone(
  cli: { project(named: string | undefined): Promise<Project> },
  named: string | undefined,
): Promise<Project | null> {
  try {
    return await cli.project(named);
  } catch (error) {
    if (error instanceof CliError && error.code === 'no_project') return null;
    throw error;
  }
}

const whyNoMatch = ({ url }: Session, { remotes }: Repository): { said: string; next: string } =>
  remotes.length === 0
    ? {
        said: 'this repository has no remote',
        next: 'name a project (berth project list), or: git remote add origin URL',
      }
    : {
        said: `no project at ${url} builds from a remote of this folder`,
        next: 'name one (berth project list) or create one (berth project create)',
      };

/** Returns the projects that build from a remote of the repository. */
async function matchRemote(session: Session, repository: Repository): Promise<Project[]> {
  const keys = new Set(repository.remotes.map((remote) => repositoryKey(remote.url)));
  if (keys.size === 0) return [];
  const projects = await allPages((cursor) =>
    session.client.call('listProjects', { query: { limit: 200, ...cursor } }),
  );
  return projects.filter(
    (project) => !project.deleting && keys.has(repositoryKey(project.git_url)),
  );
}

async function getProject(session: Session, name: string, from?: string): Promise<Project> {
  try {
    return await session.client.call('getProject', { params: { id: name } });
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 'not_found') throw error;
    const near = await similarNames(session, name);
    throw refused(
      'not_found',
      `there is no project “${name}” at ` +
        `${session.url}${from === undefined ? '' : ` (named in ${from})`}`,
      near.length === 0
        ? 'berth project list'
        : `did you mean ${near.join(' or ')}? All: berth project list`,
    );
  }
}

/**
 * Returns up to 3 similar project names. Errors are ignored, because reporting the failure matters
 * more than the suggestion.
 */
async function similarNames(session: Session, name: string): Promise<string[]> {
  const { items } = await session.client
    .call('listProjects', { query: { limit: 200 } })
    .catch(() => ({ items: [] as Project[] }));
  const wanted = name.toLowerCase();
  const most = Math.max(1, Math.floor(wanted.length / 3));
  return items
    .map((project) => ({
      name: project.name,
      far: distance(wanted, project.name.toLowerCase(), most),
    }))
    .filter(
      ({ name: other, far }) =>
        far <= most ||
        (wanted.length > 2 && (other.startsWith(wanted) || wanted.startsWith(other))),
    )
    .sort((a, b) => a.far - b.far)
    .slice(0, 3)
    .map((one) => one.name);
}

/** Returns the number of character edits and swaps. A result above `most` is not exact. */
function distance(a: string, b: string, most: number): number {
  if (Math.abs(a.length - b.length) > most || a.length > 100) return most + 1;
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const change = (row[j - 1] ?? 0) + Number(a[i - 1] !== b[j - 1]);
      const swap =
        i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
          ? (before[j - 2] ?? 0) + 1
          : change;
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, change, swap));
    }
    [before, row] = [row, next];
  }
  return row[b.length] ?? 0;
}
