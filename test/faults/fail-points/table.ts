/**
 * Every fail point at which the suite kills a process. Tests compare this table with the calls in
 * the sources, with docs/fail-points.md and with the rows of test/faults/fail-points.test.ts.
 */
/** `second node`: a deploy node without projects, except during a move. */
export type PointProcess = 'control-plane' | 'builder' | 'node' | 'second node';
/** The operation during which the process dies (scenarios.ts). */
export type Scenario =
  | 'deploy'
  | 'slow deploy'
  | 'rollback'
  | 'recreate'
  | 'failing deploy'
  | 'cancel'
  | 'lost lease'
  | 'project removal'
  | 'node removal'
  | 'data'
  | 'dataset removal'
  | 'start'
  | 'push'
  | 'secrets'
  | 'status'
  | 'new key'
  | 'upgrade'
  | 'clean-up'
  | 'volume move'
  | 'run'
  | 'job'
  | 'release';
export type Point = { name: string; process: PointProcess; during: Scenario; stake: string };

const of =
  (process: PointProcess, during: Scenario) =>
  (name: string, stake: string): Point => ({ name, process, during, stake });

const plane = of('control-plane', 'deploy');
const builder = of('builder', 'deploy');
const node = of('node', 'deploy');
const data = of('node', 'data');
const push = of('control-plane', 'push');
const upgrade = of('control-plane', 'upgrade');
const command = of('node', 'run');
const ofRun = of('control-plane', 'run');
const ofJob = of('control-plane', 'job');
const ofRelease = of('control-plane', 'release');
const release = of('node', 'release');

/**
 * Fail points of a commit, named after the last line that it adds to the deployment's story;
 * `silent` when it adds none.
 */
const commit = (kind: string, stake: string, during: Scenario = 'deploy'): Point[] => [
  {
    name: `commit.before.${kind}`,
    process: 'control-plane',
    during,
    stake: `${stake}: written, not committed`,
  },
  {
    name: `commit.after.${kind}`,
    process: 'control-plane',
    during,
    stake: `${stake}: committed, nobody notified`,
  },
];

export const FAIL_POINTS: readonly Point[] = [
  // ── control plane: what it decides ───────────────────────────────────────────────────────────────────────────────────
  ...commit(
    'pending',
    'a deployment is accepted; the client repeats its request with the same Idempotency-Key',
  ),
  ...commit('building', 'a builder gets the build task'),
  ...commit('built', 'the builder’s report is applied'),
  ...commit('deploying', 'a node gets the deploy task'),
  ...commit('route_published', 'the new version’s route is published'),
  ...commit('running', 'the switch: the old version is retired and a task removes it'),
  ...commit('retire_done', 'the node’s report of the removal is applied'),
  ...commit('cancel_requested', 'a cancellation is accepted', 'cancel'),
  ...commit('cancelled', 'the builder has stopped', 'cancel'),
  ...commit('failed', 'the new version did not start; the old one stays', 'failing deploy'),

  // ── control plane: what agents tell it ───────────────────────────────────────────────────────────────────────────────
  plane('claim.before.build', 'a lease is written, not committed'),
  plane('claim.before.deploy', 'a lease is written, not committed'),
  plane('claim.before.retire', 'a lease is written, not committed'),
  plane(
    'claim.after',
    'a lease exists, its agent got no answer: the agent claims again, which voids the first lease',
  ),
  plane('report.before.build', 'a report has arrived and is not stored yet'),
  plane('report.before.deploy', 'a report has arrived and is not stored yet'),
  plane('report.before.retire', 'a report has arrived and is not stored yet'),
  plane(
    'report.after.build',
    'a report is applied, its agent got no answer: it sends the same report again',
  ),
  plane(
    'report.after.deploy',
    'a report is applied, its agent got no answer: it sends the same report again',
  ),
  plane(
    'report.after.retire',
    'a report is applied, its agent got no answer: it sends the same report again',
  ),
  plane('logs.before', 'log lines are written, not committed'),
  plane(
    'logs.after',
    'log lines are stored, their agent got no answer: it sends the same lines again',
  ),
  of('control-plane', 'slow deploy')('renew.after', 'a lease is renewed, its agent got no answer'),
  plane('register.after', 'a node is registered, its observations are not applied'),

  // ── control plane: what its loops do ─────────────────────────────────────────────────────────────────────────────────
  plane('routes.changed', 'new routes are read, the proxy does not have them yet'),
  plane('route.confirmed', 'the proxy serves the new version, the switch is not decided yet'),
  of('control-plane', 'lost lease')(
    'lease.lost',
    'a lease has expired, the task is not taken away yet',
  ),
  of('control-plane', 'project removal')(
    'project.marked',
    'a project is marked for deletion, its deployments have not ended yet',
  ),
  of('control-plane', 'project removal')(
    'project.remove.before',
    'a project’s logs are deleted, its row is not',
  ),
  of('control-plane', 'project removal')('project.remove.after', 'a project is deleted'),
  of('control-plane', 'node removal')(
    'node.marked',
    'a node is marked for deletion, its deployments are not checked yet',
  ),
  of('control-plane', 'node removal')(
    'node.remove.before',
    'a node’s row is deleted, not committed',
  ),
  of('control-plane', 'node removal')('node.remove.after', 'a node is deleted'),

  // ── control plane: pushes, commit statuses, keys ─────────────────────────────────────────────────────────────────────
  push(
    'hook.stored',
    'a delivery is stored, the forge got no answer: it sends the same delivery again',
  ),
  push('claim.before.look', 'a lease is written, not committed'),
  push('report.before.look', 'a report has arrived and is not stored yet'),
  push(
    'report.after.look',
    'the deployment of a push is requested, the agent got no answer: it sends the same report ' +
      'again',
  ),
  of('control-plane', 'status')(
    'status.claimed',
    'a commit status is claimed, not sent: it is sent when the claim expires',
  ),
  of('control-plane', 'status')(
    'status.sent',
    'the forge has a commit status, and nobody remembers it: it is sent again',
  ),
  of('control-plane', 'new key')(
    'rewrap.after',
    'some project keys are wrapped by the new SECRETS_KEY, others by the old one',
  ),

  // ── control plane: the first start of a new version ──────────────────────────────────────────────────────────────────
  upgrade('snapshot.before', 'the database is locked, no snapshot exists'),
  upgrade('backup.copied', 'the database is copied, its archive is not written'),
  upgrade('snapshot.after', 'the snapshot exists, nothing is migrated: the next start uses it'),
  upgrade('migrate.step', 'a step has run, it is not committed'),
  upgrade('migrate.after', 'the database is migrated, the control plane is not ready'),

  // ── control plane: runs and jobs ─────────────────────────────────────────────────────────────────────────────────────
  ofRun('runs.offer.before', 'a run gets a node and a task: written, not committed'),
  ofRun('runs.offer.after', 'a run has a node and a task: committed, nobody notified'),
  ofRun('claim.before.run', 'a lease is written, not committed'),
  ofRun('runs.end.before', 'the end of a run is written, not committed'),
  ofRun(
    'runs.end.after',
    'a run has ended, its agent got no answer: it sends the same report again',
  ),
  ofJob('jobs.due.before', 'the run of a time, and the next time: written, not committed'),
  ofJob('jobs.due.after', 'the run of a time, and the next time: committed, nobody notified'),

  // ── the report of a release command: the agent's points have the names of those of a run ─────────────────────────────
  ofRelease('report.before.run', 'a report has arrived and is not stored yet'),
  ofRelease(
    'report.after.run',
    'the new version may start, the agent got no answer: it sends the same report again',
  ),
  release('agent.report.before.run', 'the release command has ended, its end is not reported'),
  release('agent.report.after.run', 'the end of the release command is reported'),

  // ── clean-up of the registry ─────────────────────────────────────────────────────────────────────────────────────────
  of('control-plane', 'clean-up')(
    'clean-up.start.before',
    'images are marked and the task exists: written, not committed',
  ),
  of('control-plane', 'clean-up')(
    'clean-up.start.after',
    'images are marked and builds wait: committed, nobody notified',
  ),
  of('control-plane', 'clean-up')(
    'clean-up.report.before',
    'the end of the clean-up is written, not committed',
  ),
  of('control-plane', 'clean-up')(
    'clean-up.report.after',
    'the clean-up has ended, its agent got no answer',
  ),
  of('builder', 'clean-up')('agent.claim.after.clean', 'the clean-up is claimed, not started'),
  of('builder', 'clean-up')('clean.deleted', 'one of the images is deleted'),
  of('builder', 'clean-up')(
    'clean.read-only.before',
    'all images are deleted, their space is not free',
  ),
  of('builder', 'clean-up')(
    'clean.marked',
    'a marker says that the registry is read-only, its configuration does not',
  ),
  of('builder', 'clean-up')(
    'clean.read-only.written',
    'the configuration says read-only, the registry still takes images',
  ),
  of('builder', 'clean-up')('clean.collect.before', 'the registry is read-only'),
  of('builder', 'clean-up')('clean.collect.after', 'the space is free, the registry is read-only'),
  of('builder', 'clean-up')(
    'clean.restored',
    'the configuration is as before, the registry is read-only until its restart',
  ),
  of('builder', 'clean-up')(
    'clean.writable',
    'the registry takes images again, the clean-up is not reported',
  ),

  // ── a drain moves volumes from the second node to the first ──────────────────────────────────────────────────────────
  ...commit('volumes', 'both ends have proven the copy', 'volume move'),
  of('control-plane', 'volume move')(
    'move.chunk',
    'the receiver has the chunk; the sender has no answer yet',
  ),
  of('control-plane', 'volume move')(
    'report.before.move',
    'one of the two nodes has reported; the control plane has not stored the report',
  ),
  of('control-plane', 'volume move')(
    'report.after.move',
    'one of the two nodes has reported; its agent got no answer',
  ),
  of('second node', 'volume move')('move.send', 'nothing is sent, the project is stopped'),
  of('second node', 'volume move')(
    'move.sent',
    'everything is sent, the sender has not read its files again',
  ),
  of('node', 'volume move')('move.receive', 'a chunk has arrived, it is not written'),
  of('node', 'volume move')('move.received', 'all files are on the disk, not verified'),
  of('node', 'volume move')('move.verified', 'the files are verified, not in their place'),
  of('node', 'volume move')(
    'move.displaced',
    'an older copy is out of the way, the new one is not in its place',
  ),
  of('node', 'volume move')('move.finished', 'the new copy is in its place, not reported'),

  // ── builder ──────────────────────────────────────────────────────────────────────────────────────────────────────────
  builder('agent.claim.before.build', 'a build is listed, not claimed'),
  builder('agent.claim.after.build', 'a build is claimed, not started'),
  builder('clone.before', 'the workspace exists and is empty'),
  builder('clone.after', 'the workspace holds the clone'),
  of('builder', 'push')('agent.claim.after.look', 'a look is claimed, not started'),
  of('builder', 'push')('agent.report.before.look', 'the tip of a branch is read, not reported'),
  of('builder', 'secrets')(
    'build.before',
    'a build has its secrets in memory, and has not started',
  ),
  builder('push.during', 'layers are being pushed to the registry'),
  builder('push.after', 'the image is in the registry, nobody was notified'),
  builder('agent.logs.before', 'log lines are not sent'),
  builder('agent.logs.after', 'log lines are sent'),
  builder('agent.report.before.build', 'the build is complete, not reported'),
  builder('agent.report.after.build', 'the build is reported'),

  // ── deploy node: bringing up ─────────────────────────────────────────────────────────────────────────────────────────
  node('agent.claim.before.deploy', 'a deployment is listed, not claimed'),
  node('agent.claim.after.deploy', 'a deployment is claimed, not started'),
  of('node', 'rollback')('pull.before', 'the image is not pulled'),
  of('node', 'rollback')('pull.after', 'the image is pulled, no container runs'),
  of('node', 'secrets')(
    'secrets.sealed',
    'the encrypted copy of secret files is on disk, the files are not on tmpfs',
  ),
  of('node', 'secrets')('secrets.written', 'secret files are on tmpfs, no container mounts them'),
  node('run.before', 'the container is not created'),
  node('run.during', 'the engine creates and starts the container'),
  node('run.after', 'the container runs, nobody was notified'),
  node('probe.before', 'the container has a port, it was not probed'),
  node('probe.after', 'the container answers, but has no restart policy yet'),
  node('restart-policy.after', 'the container has its restart policy, not reported'),
  node('agent.report.before.deploy', 'the container’s port is not reported'),
  node('agent.report.after.deploy', 'the container’s port is reported'),
  of('node', 'slow deploy')('agent.renew.after', 'a lease is renewed while the container starts'),
  of('node', 'recreate')(
    'recreate.stopped',
    'the old container is stopped, the new one not started',
  ),
  of('node', 'failing deploy')('undo.before', 'a failed container still exists'),
  of('node', 'failing deploy')(
    'undo.after',
    'a failed container is removed, the failure is not reported',
  ),

  // ── deploy node: data ────────────────────────────────────────────────────────────────────────────────────────────────
  data('copy.staged', 'a copy of a dataset is in .staging, not verified'),
  data('copy.verified', 'a copy is verified and on disk, not yet renamed to a version'),
  data('copy.renamed.before', 'the version’s metadata is written, the version does not exist yet'),
  data('copy.renamed.after', 'the version exists, its name is not flushed, nothing mounts it'),
  data('mount.linked', 'a deployment’s symlink exists, no container does'),
  of('node', 'dataset removal')(
    'evict.before',
    'a version is chosen for eviction, it still exists',
  ),
  of('node', 'dataset removal')('evict.after', 'a version is in .trash, its metadata still exists'),

  // ── deploy node: retiring ────────────────────────────────────────────────────────────────────────────────────────────
  node('agent.claim.before.retire', 'a removal is listed, not claimed'),
  node('agent.claim.after.retire', 'a removal is claimed, not started'),
  node('retire.before', 'the old container has drained, it still runs'),
  node('retire.stopped', 'the old container is stopped, not removed'),
  node('retire.removed', 'the old container is removed, the new one is not renamed'),
  node('rename.before', 'the name is free, the new container is not renamed'),
  node('rename.after', 'the new container is renamed, not reported'),
  node('agent.report.before.retire', 'the removal is not reported'),
  node('agent.report.after.retire', 'the removal is reported'),

  // ── deploy node: a command in a container of its own ─────────────────────────────────────────────────────────────────
  command('agent.claim.before.run', 'a run is listed, not claimed'),
  command('agent.claim.after.run', 'a run is claimed, not started'),
  command('command.created', 'the container exists, no mark says that its start is near'),
  command('command.marked', 'the mark is on the disk, the command has not started'),
  command('command.started', 'the command runs, nobody was notified'),
  command('agent.report.before.run', 'the command has ended, its exit code is not reported'),
  command('command.reported', 'the exit code is reported, the container exists'),
  command('command.removed', 'the exit code is reported, the container is removed, not its mark'),
  command('agent.report.after.run', 'the exit code is reported, nothing is left'),

  // ── an agent's start ─────────────────────────────────────────────────────────────────────────────────────────────────
  of('node', 'start')('agent.register.before', 'a node starts, not registered'),
  of('node', 'start')('agent.register.after', 'a node is registered and does not know its id'),
  of('node', 'start')(
    'reconcile.before',
    'a container that was created but never started is found, not removed',
  ),
  of('node', 'start')(
    'reconcile.after',
    'a container that was created but never started is removed',
  ),
];

/**
 * Passed by every run of the suite, cheap, and each another way to lose something: what `npm test`
 * kills at.
 */
export const QUICK: readonly string[] = ['commit.after.running', 'run.during'];
