/**
 * Proposes values for a new project from the content of its repository, which a builder reads.
 * Without a builder, the defaults apply.
 */
import { ApiError } from '@berth/wire/client';
import { PROJECT_DEFAULTS } from '@berth/wire/project';
import type { RepositoryFound } from '@berth/wire/repository-look';
import { cancelled } from '../ask.ts';
import type { Cli } from '../cli.ts';
import { canAsk } from '../io.ts';
import { oneLine } from '../output/text.ts';
import { reasonOf } from '../problem.ts';
import { lookAt } from './look.ts';

/** Values that the caller gave, including the build stage, which decides the port. */
export type Wanted = {
  branch?: string;
  dockerfile_path?: string;
  build_target?: string | null;
  container_port?: number;
};
export type Proposals = Pick<Wanted, 'branch' | 'dockerfile_path' | 'container_port'>;
/** Lets the person choose one of several values. Returns null if no person can answer. */
type Choose = <T extends string | number>(question: string, of: readonly T[]) => Promise<T | null>;

/**
 * Proposes the values that were not given and differ from the defaults. `hints` name values that a
 * person must choose.
 */
export async function proposalsOf(
  found: RepositoryFound,
  wanted: Wanted,
  choose: Choose,
): Promise<{ taken: Proposals; hints: string[] }> {
  const taken: Proposals = {};
  const hints: string[] = [];
  if (found.branch === null) {
    hints.push(
      wanted.branch === undefined
        ? 'the repository has no branch yet'
        : `the repository has no branch ${wanted.branch} yet; push it`,
    );
    return { taken, hints };
  }
  if (wanted.branch === undefined && found.branch !== PROJECT_DEFAULTS.branch)
    taken.branch = found.branch;

  const paths = found.dockerfiles.map(({ path }) => path);
  let path = wanted.dockerfile_path;
  if (path === undefined && paths.length === 0) hints.push(`${found.branch} has no Dockerfile`);
  if (path === undefined) {
    const chosen = await chooseDockerfile(found, choose);
    path = chosen ?? PROJECT_DEFAULTS.dockerfile_path;
    if (chosen === null && paths.length > 0 && !paths.includes(path))
      hints.push(`choose a Dockerfile with --dockerfile-path: ${paths.join(', ')}`);
    if (path !== PROJECT_DEFAULTS.dockerfile_path) taken.dockerfile_path = path;
  }

  const file = found.dockerfiles.find((one) => one.path === path);
  const stage = file?.targets.find(({ name }) => name === wanted.build_target);
  const ports = (stage ?? file)?.ports ?? [];
  if (wanted.container_port !== undefined || ports.length === 0) return { taken, hints };
  const port = ports.length === 1 ? ports[0] : await choose('Port', ports);
  const usual: number = PROJECT_DEFAULTS.container_port;
  if (port === null && !ports.includes(usual))
    hints.push(`choose a port with --container-port: ${path} exposes ${ports.join(', ')}`);
  if (port !== null && port !== undefined && port !== usual) taken.container_port = port;
  return { taken, hints };
}

const textOf = ({ branch, dockerfile_path, container_port }: Proposals): string =>
  [
    branch === undefined ? [] : [`branch ${branch}`],
    dockerfile_path === undefined ? [] : [`Dockerfile ${dockerfile_path}`],
    container_port === undefined ? [] : [`port ${container_port}`],
  ]
    .flat()
    .join(', ');

/**
 * Reads the repository for the values that were not given. In a terminal, the person chooses and
 * confirms; otherwise one line says which values are used. If no builder can read the repository,
 * the defaults apply.
 */
export async function proposed(cli: Cli, git_url: string, wanted: Wanted): Promise<Proposals> {
  if (
    wanted.branch !== undefined &&
    wanted.dockerfile_path !== undefined &&
    wanted.container_port !== undefined
  )
    return {};
  const asks = canAsk(cli.io) && !cli.json;
  if (asks) cli.say(`a builder looks into ${git_url} …`);
  const repository = await findings(cli, git_url, wanted.branch ?? null);
  if (repository === null) return {};
  const { taken, hints } = await proposalsOf(repository, wanted, asks ? choose : async () => null);
  for (const hint of hints) cli.say(`note: ${oneLine(hint)}`);
  const text = oneLine(textOf(taken));
  if (text === '') return {};
  if (asks) await confirmUse(text);
  else cli.say(`taken from the repository: ${text}`);
  return taken;
}

/** Returns the content of the repository. If no builder can read it, says why and returns null. */
async function findings(
  cli: Cli,
  git_url: string,
  branch: string | null,
): Promise<RepositoryFound | null> {
  try {
    const { found, error, unavailable } = await lookAt(cli, { git_url, branch });
    const why = error?.message ?? (found === null ? unavailable : undefined);
    if (why !== undefined)
      cli.say(
        'note: the defaults are used, because no builder could read the repository: ' +
          oneLine(why),
      );
    return found ?? null;
  } catch (given) {
    const error = reasonOf(given);
    // Do not report these errors here (not signed in, a page from a proxy, no connection): the
    // request that creates the project fails in the same way.
    if (
      !(error instanceof ApiError) ||
      error.problem === null ||
      error.status === 401 ||
      error.status >= 500
    )
      throw given;
    // Stay silent about other errors: an older control plane lacks this route, and a wrong address
    // is refused with its field when the project is created.
    if (error.status === 429)
      cli.say(`note: the defaults are used: ${oneLine(error.problem.detail)}`);
    return null;
  }
}

async function choose<T extends string | number>(
  question: string,
  of: readonly T[],
): Promise<T | null> {
  const { isCancel, select } = await import('@clack/prompts');
  const options = of.map((value) => ({ value: String(value), label: oneLine(String(value)) }));
  const chosen = await select({ message: question, options, output: process.stderr });
  if (isCancel(chosen)) throw cancelled();
  return of.find((value) => String(value) === chosen) ?? null;
}

async function confirmUse(text: string): Promise<void> {
  const { confirm, isCancel } = await import('@clack/prompts');
  const answer = await confirm({
    message: `Create the project with ${text}?`,
    initialValue: true,
    output: process.stderr,
  });
  if (isCancel(answer) || !answer) throw cancelled();
}

/** Returns the path of the Dockerfile, or null if there is none or nobody can choose one. */
async function chooseDockerfile(found: RepositoryFound, choose: Choose): Promise<string | null> {
  const paths = found.dockerfiles.map(({ path }) => path);
  const [first = null] = paths;
  const isOnly = paths.length === 1 && found.dockerfiles_left_out === 0;
  return first === null || isOnly ? first : await choose('Dockerfile', paths);
}
