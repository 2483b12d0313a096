// Becomes the first process of a machine, in namespaces and a control group of its own: mounts a Debian root with a writable layer above
// it, and starts its systemd. machine.ts runs: node enter-machine.mjs BASE LAYER CGROUP
import { execFileSync } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [base, layer, cgroup] = process.argv.slice(2);
if (cgroup !== undefined) {
  // The machine's control groups begin where this process is when it makes their namespace. No other process may be there.
  writeFileSync(join(cgroup, 'cgroup.procs'), String(process.pid));
  const namespaces = [
    '--mount',
    '--pid',
    '--net',
    '--uts',
    '--ipc',
    '--cgroup',
    '--propagation',
    'private',
  ];
  const again = [process.execPath, process.argv[1], base, layer];
  process.execve(
    '/usr/bin/unshare',
    ['unshare', ...namespaces, '--fork', '--kill-child=KILL', ...again],
    process.env,
  );
}
const root = join(layer, 'root');
const run = (program, ...args) =>
  execFileSync(program, args, { stdio: ['ignore', 'ignore', 'inherit'] });
for (const name of ['root', 'upper', 'work', 'docker'])
  mkdirSync(join(layer, name), { recursive: true });
run(
  'mount',
  '-t',
  'overlay',
  '-o',
  `lowerdir=${base},upperdir=${join(layer, 'upper')},workdir=${join(layer, 'work')}`,
  'overlay',
  root,
);
// The engine's layers cannot lie on the layers of this root.
mkdirSync(join(root, 'var/lib/docker'), { recursive: true });
run('mount', '--bind', join(layer, 'docker'), join(root, 'var/lib/docker'));
run('mount', '-t', 'proc', 'proc', join(root, 'proc'));
run('mount', '-t', 'sysfs', 'sysfs', join(root, 'sys'));
run('mount', '-t', 'cgroup2', 'cgroup2', join(root, 'sys/fs/cgroup'));
run('mount', '-t', 'tmpfs', '-o', 'mode=755', 'tmpfs', join(root, 'dev'));
for (const name of ['null', 'zero', 'full', 'random', 'urandom', 'tty']) {
  writeFileSync(join(root, 'dev', name), '');
  run('mount', '--bind', join('/dev', name), join(root, 'dev', name));
}
for (const name of ['pts', 'shm', 'mqueue']) mkdirSync(join(root, 'dev', name));
run('mount', '-t', 'devpts', '-o', 'newinstance,ptmxmode=0666', 'devpts', join(root, 'dev/pts'));
symlinkSync('pts/ptmx', join(root, 'dev/ptmx'));
// It searches the disks of the real machine.
symlinkSync('/dev/null', join(root, 'etc/systemd/system/e2scrub_reap.service'));
run('mount', '-t', 'tmpfs', 'tmpfs', join(root, 'dev/shm'));
run('mount', '-t', 'tmpfs', '-o', 'mode=755', 'tmpfs', join(root, 'run'));
mkdirSync(join(root, 'run/outside'));
run('pivot_root', root, join(root, 'run/outside'));
process.chdir('/');
run('umount', '--lazy', '/run/outside');
process.execve(
  '/usr/lib/systemd/systemd',
  ['/usr/lib/systemd/systemd', '--system', '--show-status=no'],
  {
    // systemd then leaves out what only a real machine has.
    container: 'berth-test',
    PATH: '/usr/sbin:/usr/bin:/sbin:/bin',
  },
);
