/**
 * Only one of two nested datasets may be mounted readwrite: a writer of the outer one could replace
 * the inner one by a symlink.
 */
import { describe, expect, test } from 'vitest';
import { DomainError } from '../../src/domain/platform/errors.ts';
import type { DatasetRecord } from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import { commit, deploymentIn, nodeIn, NOW, open, projectIn, taskOf, tasksIn } from './fixtures.ts';

const dataset = (stores: AllStores, nfs_path: string): Promise<DatasetRecord> =>
  stores.datasets.create({ name: nfs_path.replaceAll('/', '-'), nfs_path }, NOW);
const written = (...datasets: DatasetRecord[]) => ({
  replace: 'recreate' as const,
  datasets: datasets.map(({ id }) => ({ dataset_id: id, mode: 'readwrite' as const })),
});
const read = (...datasets: DatasetRecord[]) => ({
  datasets: datasets.map(({ id }) => ({ dataset_id: id, mode: 'dependency' as const })),
});

/** Returns `field rule: message` of the one broken rule; null on success. */
const refusal = (work: Promise<unknown>): Promise<string | null> =>
  work.then(
    () => null,
    (error: unknown) => {
      if (!(error instanceof DomainError) || error.code !== 'validation') throw error;
      return error.fields.map(({ field, rule, message }) => `${field} ${rule}: ${message}`).join();
    },
  );
const SECOND = 'datasets[1].dataset_id nested_writer: ';
const FIRST = 'datasets[0].dataset_id nested_writer: ';
const PATH = 'nfs_path nested_writer: ';

async function scene() {
  const stores = await open();
  const [lab, genomes, labor] = [
    await dataset(stores, 'lab'),
    await dataset(stores, 'lab/genomes'),
    await dataset(stores, 'labor'),
  ];
  return { stores, lab, genomes, labor };
}

describe('a project', () => {
  test('cannot be created or changed to write inside or around a dataset that another project writes', async () => {
    const { stores, lab, genomes, labor } = await scene();
    const outer = await projectIn(stores, 'outer', written(lab));
    expect(await refusal(projectIn(stores, 'inner', written(labor, genomes)))).toContain(
      `${SECOND}lab-genomes (lab/genomes) lies inside lab (lab), which project outer mounts ` +
        'readwrite',
    );
    const inner = await projectIn(stores, 'inner');
    expect(await refusal(stores.projects.patch(inner.id, written(genomes), NOW))).toContain(
      `${FIRST}lab-genomes (lab/genomes) lies inside`,
    );
    expect((await stores.projects.get(inner.id)).datasets).toEqual([]);

    // A read-only mount gets a copy. A folder with the same prefix in its name is not nested. The
    // same dataset twice is allowed.
    expect(await refusal(stores.projects.patch(inner.id, read(genomes), NOW))).toBeNull();
    expect(await refusal(stores.projects.patch(inner.id, written(labor, lab), NOW))).toBeNull();
    expect(await refusal(stores.projects.patch(inner.id, { datasets: [] }, NOW))).toBeNull();
    expect(await refusal(stores.projects.patch(outer.id, read(lab), NOW))).toBeNull();
    expect(await refusal(stores.projects.patch(inner.id, written(genomes), NOW))).toBeNull();
    expect(await refusal(stores.projects.patch(outer.id, written(lab), NOW))).toContain(
      `${FIRST}lab (lab) lies around lab-genomes (lab/genomes), which project inner mounts ` +
        'readwrite',
    );
  });

  test('cannot write two nested datasets itself', async () => {
    const { stores, lab, genomes } = await scene();
    expect(await refusal(projectIn(stores, 'both', written(lab, genomes)))).toContain(
      `${SECOND}lab-genomes (lab/genomes) lies inside lab (lab), which project both`,
    );
    const both = await projectIn(stores, 'both', written(lab));
    expect(await refusal(stores.projects.patch(both.id, written(genomes), NOW))).toBeNull();
    expect(await refusal(stores.projects.patch(both.id, written(genomes, lab), NOW))).toContain(
      SECOND,
    );
  });

  test('counts as a writer until its deletion is complete', async () => {
    const { stores, lab, genomes } = await scene();
    const outer = await projectIn(stores, 'outer', written(lab));
    await stores.projects.markDeleting(outer.id, NOW);
    expect(await refusal(projectIn(stores, 'inner', written(genomes)))).toContain(
      'which project outer mounts readwrite',
    );
    expect(await stores.projects.removeIfGone(outer.id)).toBe(true);
    expect(await refusal(projectIn(stores, 'inner', written(genomes)))).toBeNull();
  });

  test('whose live version writes counts as a writer for others even after its settings changed', async () => {
    const { stores, lab, genomes } = await scene();
    const outer = await projectIn(stores, 'outer', written(lab));
    await deploymentIn(stores, outer, 'd1', { status: 'running' });
    expect(await refusal(stores.projects.patch(outer.id, { datasets: [] }, NOW))).toBeNull();
    expect(await refusal(projectIn(stores, 'inner', written(genomes)))).toContain(
      'which deployment 1 of outer mounts readwrite',
    );
    // It stops before the next version starts.
    expect(await refusal(stores.projects.patch(outer.id, written(genomes), NOW))).toBeNull();
    await commit(stores, outer.id, {
      changeDeployments: [{ id: 'd1', from: 'running', set: { status: 'retired' } }],
    });
    await stores.projects.patch(outer.id, { datasets: [] }, NOW);
    expect(await refusal(projectIn(stores, 'inner', written(genomes)))).toBeNull();
  });
});

describe('a dataset', () => {
  test('cannot be moved inside or around another one while both are written', async () => {
    const { stores, lab, labor } = await scene();
    await projectIn(stores, 'outer', written(lab));
    const other = await projectIn(stores, 'other', read(labor));
    const move = (nfs_path: string): Promise<string | null> =>
      refusal(stores.datasets.patch(labor.id, { nfs_path }, NOW));
    expect(await move('lab/x')).toBeNull();
    expect(await refusal(stores.projects.patch(other.id, written(labor), NOW))).toContain(FIRST);
    expect(await move('labor')).toBeNull();
    await stores.projects.patch(other.id, written(labor), NOW);
    expect(await move('lab/x/y')).toContain(
      `${PATH}labor (lab/x/y) lies inside lab (lab), which project outer mounts readwrite`,
    );
    expect((await stores.datasets.get(labor.id)).nfs_path).toBe('labor');
    expect(await refusal(stores.datasets.patch(lab.id, { nfs_path: 'labor/lab' }, NOW))).toContain(
      `${PATH}lab (labor/lab) lies inside labor (labor), which project other mounts readwrite`,
    );
    // Deeper, or higher, without another dataset there.
    expect(await move('labor/deep')).toBeNull();
    expect(await move('labor')).toBeNull();
  });

  test('that was moved is still written at its old place by live deployments', async () => {
    const { stores, lab, genomes } = await scene();
    const outer = await projectIn(stores, 'outer', written(lab));
    const node = await nodeIn(stores, 'w1', { role: 'deploy' });
    await deploymentIn(stores, outer, 'd1', { status: 'running' });
    const task = taskOf(outer, 't1', node.id, { kind: 'deploy', deployment_id: 'd1' });
    if (task.kind !== 'deploy') throw new Error('fixture');
    const { id: dataset_id, name, nfs_path } = lab;
    task.payload.datasets = [
      {
        dataset_id,
        name,
        nfs_path,
        mode: 'readwrite',
        mount_path: '/data/lab',
        version: null,
        manifest_digest: null,
        bytes: 0,
        files: 0,
      },
    ];
    await tasksIn(stores, outer, task);
    expect(await refusal(stores.datasets.patch(lab.id, { nfs_path: 'lab/deeper' }, NOW))).toContain(
      `${PATH}lab (lab/deeper) lies inside lab (lab), which deployment 1 of outer mounts readwrite`,
    );
    expect(await refusal(stores.datasets.patch(lab.id, { nfs_path: 'elsewhere' }, NOW))).toBeNull();
    expect(await refusal(projectIn(stores, 'inner', written(genomes)))).toContain(
      'lies inside lab (lab), which deployment 1 of outer mounts readwrite',
    );
  });

  test('is not mounted again by a rollback while another project writes around it', async () => {
    const { stores, lab, genomes } = await scene();
    const inner = await projectIn(stores, 'inner');
    await projectIn(stores, 'outer', written(lab));
    const brought = deploymentIn(stores, inner, 'd2', {
      rollback_of: 'd1',
      settings: { ...inner, ...written(genomes) },
    });
    await expect(brought).rejects.toMatchObject({
      code: 'no_release',
      message: expect.stringContaining('which project outer mounts readwrite'),
    });
  });
});
