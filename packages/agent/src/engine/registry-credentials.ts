/**
 * Holds the credentials of the registry: as a header for the engine's API, and in the agent's own
 * docker config folder (mode 0600) for buildx. Never reads or writes the operator's own docker
 * config.
 */
import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { writeFileWhole } from '@berth/kit/write-file';
import { registryOf } from './image-ref.ts';

export type RegistryLogin = { address: string; user: string; password: string };
export type RegistryCredentials = {
  /** STATE_DIR/docker. */
  configDir: string;
  /** Writes the credentials, which the next call uses. */
  use(login: RegistryLogin | null): Promise<void>;
  /** Returns the header X-Registry-Auth for a pull of `image`. */
  headerFor(image: string): string;
  /** Returns texts that must not appear in a log or an error. */
  secrets(): readonly string[];
};

export function createRegistryCredentials(options: {
  configDir: string;
  /** Additional folder with plugins of the docker command. */
  pluginsDir?: string | undefined;
}): RegistryCredentials {
  let current: RegistryLogin | null = null;
  return {
    configDir: options.configDir,
    async use(login) {
      await writeConfig(options, login);
      current = login;
    },
    headerFor: (image) => headerOf(current, image),
    secrets: () =>
      current === null || current.password === '' ? [] : [current.password, basic(current)],
  };
}

const basic = (login: RegistryLogin): string =>
  Buffer.from(`${login.user}:${login.password}`, 'utf8').toString('base64');

/** Never sends the credentials of one registry to another registry. */
function headerOf(login: RegistryLogin | null, image: string): string {
  const isFor = login !== null && login.user !== '' && hostOf(login.address) === registryOf(image);
  return encodeAuth(
    isFor ? { username: login.user, password: login.password, serveraddress: login.address } : {},
  );
}
/** The engine expects URL-safe base64 with padding. */
const encodeAuth = (auth: object): string =>
  Buffer.from(JSON.stringify(auth)).toString('base64').replaceAll('+', '-').replaceAll('/', '_');

const hostOf = (address: string): string =>
  address.replace(/^https?:\/\//, '').replace(/\/.*$/s, '');

/**
 * Writes the config atomically: a docker command that starts meanwhile reads the old or the new
 * credentials.
 */
async function writeConfig(
  { configDir, pluginsDir }: { configDir: string; pluginsDir?: string | undefined },
  login: RegistryLogin | null,
): Promise<void> {
  await mkdir(configDir, { recursive: true, mode: 0o700 });
  await chmod(configDir, 0o700);
  const hasLogin = login !== null && login.user !== '';
  const content = {
    auths: hasLogin ? { [login.address]: { auth: basic(login) } } : {},
    ...defined({ cliPluginsExtraDirs: pluginsDir === undefined ? undefined : [pluginsDir] }),
  };
  await writeFileWhole(join(configDir, 'config.json'), JSON.stringify(content));
}
