/** Opens an address in a browser on this machine. */
import type { Io } from '../io.ts';

const SYSTEM = { darwin: 'open', linux: 'xdg-open' } as const;

/**
 * Returns false if this machine has no browser. Opens only http and https addresses, because other
 * schemes can start any program.
 */
export async function openBrowser(io: Io, address: string): Promise<boolean> {
  if (!/^https?:\/\//.test(address) || !io.config.hasDisplay) return false;
  const program = io.config.BROWSER ?? SYSTEM[process.platform as keyof typeof SYSTEM];
  if (program === undefined) return false;
  const { spawn } = await import('node:child_process');
  return new Promise((resolve) => {
    const child = spawn(program, [address], {
      detached: true,
      stdio: 'ignore',
      env: io.config.childEnv,
    });
    child.once('error', () => resolve(false));
    child.once('spawn', () => {
      child.unref();
      resolve(true);
    });
  });
}
