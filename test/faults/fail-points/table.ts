/**
 * Every fail point that the suite kills a process at. The calls in the sources, docs/fail-points.md and the rows of
 * test/faults/fail-points.test.ts are held equal to this table.
 */
export type PointProcess = 'control-plane' | 'builder' | 'node';
/** What is under way when the process dies (scenarios.ts). */
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
  | 'start';
export type Point = { name: string; process: PointProcess; during: Scenario; stake: string };

const of =
  (process: PointProcess, during: Scenario) =>
  (name: string, stake: string): Point => ({ name, process, during, stake });

const plane = of('control-plane', 'deploy');
const builder = of('builder', 'deploy');
const node = of('node', 'deploy');
const data = of('node', 'data');

/** A commit is named by the last line that it adds to the deployment's story; one that adds none is `silent`. */
const commit = (kind: string, stake: string, during: Scenario = 'deploy'): Point[] => [
  { name: `commit.before.${kind}`, process: 'control-plane', during, stake: `${stake}: written, not committed` },
  { name: `commit.after.${kind}`, process: 'control-plane', during, stake: `${stake}: committed, nobody told` },
];

export const FAIL_POINTS: readonly Point[] = [
  // ── control plane: what it decides ───────────────────────────────────────────────────────────────────────────────────
  ...commit('pending', 'a deployment is accepted; the client asks again with its Idempotency-Key'),
  ...commit('building', 'the build is given to a builder'),
  ...commit('built', 'the builder’s report is worked in'),
  ...commit('deploying', 'the deployment is given to a node'),
  ...commit('route_published', 'the new version’s route is published'),
  ...commit('running', 'the switch: the old version is retired, its removal tasked'),
  ...commit('retire_done', 'the node’s report of the removal is worked in'),
  ...commit('cancel_requested', 'a cancellation is accepted', 'cancel'),
  ...commit('cancelled', 'the builder has let go', 'cancel'),
  ...commit('failed', 'the new version did not come up; the old one stays', 'failing deploy'),

  // ── control plane: what agents tell it ───────────────────────────────────────────────────────────────────────────────
  plane('claim.before.build', 'a lease is written, not committed'),
  plane('claim.before.deploy', 'a lease is written, not committed'),
  plane('claim.before.retire', 'a lease is written, not committed'),
  plane('claim.after', 'a lease is given out, its agent was not answered: it claims again, the first lease is void'),
  plane('report.before.build', 'a report has arrived, nothing of it is kept'),
  plane('report.before.deploy', 'a report has arrived, nothing of it is kept'),
  plane('report.before.retire', 'a report has arrived, nothing of it is kept'),
  plane('report.after.build', 'a report is worked in, its agent was not answered: the same report comes again'),
  plane('report.after.deploy', 'a report is worked in, its agent was not answered: the same report comes again'),
  plane('report.after.retire', 'a report is worked in, its agent was not answered: the same report comes again'),
  plane('logs.before', 'log lines are written, not committed'),
  plane('logs.after', 'log lines are stored, their agent was not answered: the same lines come again'),
  of('control-plane', 'slow deploy')('renew.after', 'a lease is renewed, its agent was not answered'),
  plane('register.after', 'a node is registered, what it saw is not worked in'),

  // ── control plane: what its loops do ─────────────────────────────────────────────────────────────────────────────────
  plane('routes.changed', 'new routes were read, the proxy does not have them'),
  plane('route.confirmed', 'the proxy serves the new version, the switch is not decided'),
  of('control-plane', 'lost lease')('lease.lost', 'a lease has run out, the task is not taken away'),
  of('control-plane', 'project removal')('project.marked', 'a project is marked as going, its deployments were not ended'),
  of('control-plane', 'project removal')('project.remove.before', 'a project’s logs are gone, its row is not'),
  of('control-plane', 'project removal')('project.remove.after', 'a project is gone'),
  of('control-plane', 'node removal')('node.marked', 'a node is marked as going, what runs there was not looked at'),
  of('control-plane', 'node removal')('node.remove.before', 'a node’s row is deleted, not committed'),
  of('control-plane', 'node removal')('node.remove.after', 'a node is gone'),

  // ── builder ──────────────────────────────────────────────────────────────────────────────────────────────────────────
  builder('agent.claim.before.build', 'a build is listed, not claimed'),
  builder('agent.claim.after.build', 'a build is claimed, nothing was begun'),
  builder('clone.before', 'a workspace is there, empty'),
  builder('clone.after', 'a clone is in the workspace'),
  builder('push.during', 'layers are on their way to the registry'),
  builder('push.after', 'the image is in the registry, nobody knows'),
  builder('agent.logs.before', 'log lines are not sent'),
  builder('agent.logs.after', 'log lines are sent'),
  builder('agent.report.before.build', 'the build is done, not reported'),
  builder('agent.report.after.build', 'the build is reported'),

  // ── deploy node: bringing up ─────────────────────────────────────────────────────────────────────────────────────────
  node('agent.claim.before.deploy', 'a deployment is listed, not claimed'),
  node('agent.claim.after.deploy', 'a deployment is claimed, nothing was begun'),
  of('node', 'rollback')('pull.before', 'the image is not pulled'),
  of('node', 'rollback')('pull.after', 'the image is pulled, nothing runs'),
  node('run.before', 'the container is not started; its env-file is on the disk'),
  node('run.during', '`docker run` is at work and outlives the agent'),
  node('run.after', 'the container runs, nobody knows'),
  node('probe.before', 'the container has a port, it was not asked'),
  node('probe.after', 'the container answers, it would not survive a restart of its engine'),
  node('restart-policy.after', 'the container is up for good, not reported'),
  node('agent.report.before.deploy', 'the container’s port is not reported'),
  node('agent.report.after.deploy', 'the container’s port is reported'),
  of('node', 'slow deploy')('agent.renew.after', 'a lease is renewed while the container starts'),
  of('node', 'recreate')('recreate.stopped', 'the old container is stopped, the new one not started'),
  of('node', 'failing deploy')('undo.before', 'a container that failed is still there'),
  of('node', 'failing deploy')('undo.after', 'a container that failed is removed, the failure not reported'),

  // ── deploy node: data ────────────────────────────────────────────────────────────────────────────────────────────────
  data('copy.staged', 'a copy of a dataset is in .staging, not proven'),
  data('copy.verified', 'a copy is proven and on the disk, it is not a version yet'),
  data('copy.renamed.before', 'what is known of the version is written, the version is not there'),
  data('copy.renamed.after', 'the version is there, its name is not flushed, nobody mounts it'),
  data('mount.linked', 'a deployment’s symlink is there, no container'),
  of('node', 'dataset removal')('evict.before', 'a version is to go, it still stands'),
  of('node', 'dataset removal')('evict.after', 'a version is in .trash, what is known of it still stands'),

  // ── deploy node: retiring ────────────────────────────────────────────────────────────────────────────────────────────
  node('agent.claim.before.retire', 'a removal is listed, not claimed'),
  node('agent.claim.after.retire', 'a removal is claimed, nothing was begun'),
  node('retire.before', 'the old container was let drain, it still runs'),
  node('retire.stopped', 'the old container is stopped, not removed'),
  node('retire.removed', 'the old container is removed, the new one has not its name'),
  node('rename.before', 'the name is free, the new container has it not'),
  node('rename.after', 'the new container has its name, not reported'),
  node('agent.report.before.retire', 'the removal is not reported'),
  node('agent.report.after.retire', 'the removal is reported'),

  // ── an agent's start ─────────────────────────────────────────────────────────────────────────────────────────────────
  of('node', 'start')('agent.register.before', 'a node starts, it is not registered'),
  of('node', 'start')('agent.register.after', 'a node is registered and does not know its own id'),
  of('node', 'start')('reconcile.before', 'a container that was made but never started is found, not removed'),
  of('node', 'start')('reconcile.after', 'a container that was made but never started is removed'),
];

/** Passed by every run of the suite, cheap, and each another way to lose something: what `npm test` kills at. */
export const QUICK: readonly string[] = ['commit.after.running', 'report.after.build', 'run.during', 'retire.stopped'];
