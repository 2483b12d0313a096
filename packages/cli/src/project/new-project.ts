/** Finds the project of `berth deploy`: the selected project, or a new one for this folder. */
import { basename } from 'node:path';
import { defined } from '@berth/kit/defined';
import type { Project, ProjectCreate } from '@berth/wire/project';
import type { Cli } from '../cli.ts';
import { cancelled } from '../ask.ts';
import { canAsk } from '../io.ts';
import { CliError, usage } from '../problem.ts';
import { writeLink } from './link.ts';
import { readRepository, type Repository, whyNoRepository, withoutPassword } from './git.ts';
import { type Selected, selectProject } from './select.ts';

export const createdText = ({ name, url }: Pick<Project, 'name' | 'url'>): string =>
  url === null ? `created ${name}` : `created ${name}; its address will be ${url}`;

export async function projectToDeploy(cli: Cli, named: string | undefined): Promise<Selected> {
  try {
    return await selectProject(cli.io, cli.session(), named);
  } catch (error) {
    if (!(error instanceof CliError) || error.code !== 'no_project' || !canAsk(cli.io) || cli.json)
      throw error;
    const wanted = await askForProject(cli);
    const project = await cli.client().call('createProject', { body: wanted });
    cli.say(createdText(project));
    writeLink(cli, project);
    return { project, how: 'link' };
  }
}

/** Derives a valid project name from the repository's address. */
export function nameFrom(url: string): string {
  const name =
    basename(url.replace(/\/+$/, ''))
      .replace(/\.git$/, '')
      .split(':')
      .at(-1) ?? '';
  return name
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]+/g, '-')
    .replace(/^-+/, '')
    .slice(0, 63)
    .replace(/-+$/, '');
}

/** Returns the default values that follow from the repository of this folder. */
export async function defaultsHere(
  cli: Cli,
): Promise<{ repository: Repository | null; git_url: string | null; branch: string | null }> {
  const repository = await readRepository(cli.io);
  const remotes = repository?.remotes ?? [];
  const remote =
    remotes.find((one) => one.name === 'origin') ?? (remotes.length === 1 ? remotes[0] : undefined);
  return {
    repository,
    git_url: remote === undefined ? null : withoutPassword(remote.url),
    branch: repository?.branch ?? null,
  };
}

async function askForProject(cli: Cli): Promise<ProjectCreate> {
  const { repository, git_url, branch } = await defaultsHere(cli);
  if (repository === null) {
    const { said, next } = await whyNoRepository(cli.io);
    throw usage(said, next);
  }
  if (git_url === null)
    throw usage(
      repository.remotes.length === 0
        ? 'this repository has no remote, and Berth builds from a git server'
        : 'this repository has several remotes and none is named origin',
      repository.remotes.length === 0
        ? 'git remote add origin URL, then git push -u origin HEAD'
        : 'berth project create NAME --git-url URL',
    );
  const { text, isCancel } = await import('@clack/prompts');
  cli.say(`No project builds from ${git_url} yet.`);
  const output = process.stderr;
  const name = await text({
    message: 'Name of a new project (its address begins with it)',
    initialValue: nameFrom(git_url),
    validate: (given) =>
      /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(given ?? '')
        ? undefined
        : 'lower-case letters, digits and dashes',
    output,
  });
  if (isCancel(name)) throw cancelled();
  const port = await text({
    message: 'Port that the application listens on in its container',
    initialValue: '8080',
    validate: (given) =>
      Number(given) > 0 && Number(given) < 65_536 ? undefined : 'a number from 1 to 65535',
    output,
  });
  if (isCancel(port)) throw cancelled();
  return {
    name,
    git_url,
    domain_prefix: name,
    container_port: Number(port),
    ...defined({ branch: branch ?? undefined }),
  };
}
