/** Runs one clone with real git. */
import { createPrivateFolder } from '../src/state/private-folder.ts';
import type { Cloned, CloneSpec } from '../src/git/clone.ts';
import { createClone } from '../src/git/git.ts';

export type CloneSettings = {
  home: string;
  inherit?: NodeJS.ProcessEnv | undefined;
  sshKeyHosts?: readonly string[] | undefined;
};

/** `dir`: for keys, where /dev/shm cannot hold them. An error has the log too. */
export async function cloneInto(
  root: string,
  dir: string,
  spec: Partial<CloneSpec> & Pick<CloneSpec, 'url' | 'access'>,
  { home, inherit, sshKeyHosts = [] }: CloneSettings,
): Promise<{ cloned: Cloned; log: string[] }> {
  const log: string[] = [];
  const run = createClone({
    homeDir: home,
    inherit: { PATH: process.env['PATH'], ...inherit },
    cloneTimeoutMs: 30_000,
    stallTimeoutMs: 5_000,
    sshKeyHosts,
    keys: createPrivateFolder('/dev/shm', dir),
  });
  const add = (line: string): number => log.push(line);
  try {
    const options = { signal: AbortSignal.timeout(30_000), onLine: add, logLine: add };
    return {
      cloned: await run(
        { branch: 'main', commit: null, allowedHosts: [], submodules: true, ...spec },
        root,
        options,
      ),
      log,
    };
  } catch (error) {
    throw Object.assign(error as Error, { log });
  }
}
