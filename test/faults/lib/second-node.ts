/** A stage with its second deploy node open for work. */
import type { Stage } from './stage.ts';

/** With node-2 open for work, so that what node-1 loses has somewhere to go. */
export async function withSecondNode(stage: Stage, play: () => Promise<void>): Promise<void> {
  const nodes = (await stage.berth.api.call('listNodes', { query: {} })).items;
  const second = nodes.find((n) => n.hostname === 'node-2');
  if (second === undefined) throw new Error('this stage has no second node');
  const params = { id: second.id };
  await stage.berth.api.call('uncordonNode', { params });
  try {
    await play();
  } finally {
    await stage.berth.api.call('cordonNode', { params });
  }
  // Back to where the next row expects it.
  await stage.ends(await stage.release(), 'running');
}
