/**
 * Creates the folders of this agent under STATE_DIR, and removes leftovers of a previous process at
 * start.
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';
import type { NodeRole } from '@berth/wire/vocabulary';
import { removeTemporary } from '@berth/kit/write-file';
import { makePrivate } from '../file-system.ts';
import { createPrivateFolder, keysBase, type PrivateFolder } from './private-folder.ts';
import { createWorkspaces, type Workspaces } from './workspace.ts';

export type StateFolder = {
  /**
   * STATE_DIR/{role}: a machine can run one agent per role, and each removes only its own
   * leftovers.
   */
  root: string;
  /** Files that exist only during one docker command, such as env-files. */
  scratch: string;
  workspaces: Workspaces;
  /** Keys of running tasks. */
  keys: PrivateFolder;
};

type StateSettings = {
  STATE_DIR: string;
  NODE_ROLE: NodeRole;
  KEYS_DIR?: string | undefined;
  SECRETS_DIR: string;
};

export async function openStateFolder(config: StateSettings, log: Logger): Promise<StateFolder> {
  const root = join(config.STATE_DIR, config.NODE_ROLE);
  const scratch = join(root, 'scratch');
  await makePrivate(root);
  await removeTemporary(root);
  // A killed process might have left an env-file with secrets.
  await rm(scratch, { recursive: true, force: true });
  await mkdir(scratch, { recursive: true, mode: 0o700 });
  const workspaces = createWorkspaces(join(root, 'work'), log);
  await workspaces.removeLeftovers();
  if (config.KEYS_DIR !== undefined)
    log.warn(
      { KEYS_DIR: config.KEYS_DIR },
      'KEYS_DIR is deprecated: remove it; keys of running builds are then in SECRETS_DIR',
    );
  const keys = createPrivateFolder(await keysBase(config), root);
  await keys.removeLeftovers();
  return { root, scratch, workspaces, keys };
}
