/**
 * Runs `PROGRAM serve CONFIG` (its two arguments) as a service manager does: SIGHUP restarts it,
 * SIGTERM ends both.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { dyingWithParent } from '@berth/kit/exec';

const [program = '', config = ''] = process.argv.slice(2);
// Otherwise a registry would outlive a test that is killed.
const [command = '', ...args] = dyingWithParent([program, 'serve', config]);
let ending = false;
const start = (): ChildProcess => {
  const child = spawn(command, args, { stdio: 'inherit' });
  child.once('exit', () => {
    if (ending) process.exit(0);
    // Also after a crash.
    setTimeout(() => (registry = start()), 20);
  });
  return child;
};
let registry = start();
process.on('SIGHUP', () => registry.kill('SIGTERM'));
process.on('SIGTERM', () => {
  ending = true;
  registry.kill('SIGTERM');
});
