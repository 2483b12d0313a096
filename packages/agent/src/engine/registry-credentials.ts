/**
 * The credentials of the registry: for the engine's API as a header, and for buildx in the agent's
 * own docker config folder (mode 0600). The operator's own docker config is neither read nor
 * written.
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
  /** Writes the credentials. They take effect with the next call. */
  use(login: RegistryLogin | null): Promise<void>;
  /** Value of the header X-Registry-Auth for a pull of `image`. */
  headerFor(image: string): string;
  /** Texts that must not reach a log or an error. */
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

/** The credentials of one registry go to no other one. */
function headerOf(login: RegistryLogin | null, image: string): string {
  const isFor = login !== null && login.user !== '' && hostOf(login.address) === registryOf(image);
  return encodeAuth(
    isFor ? { username: login.user, password: login.password, serveraddress: login.address } : {},
  );
}
/** The engine reads base64 for URLs, with its padding. */
const encodeAuth = (auth: object): string =>
  Buffer.from(JSON.stringify(auth)).toString('base64').replaceAll('+', '-').replaceAll('/', '_');

const hostOf = (address: string): string =>
  address.replace(/^https?:\/\//, '').replace(/\/.*$/s, '');

/** A docker command that starts meanwhile reads the old credentials or the new ones. */
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
