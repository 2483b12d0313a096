import { join } from 'node:path'
import { startEngine } from '../src/engine.ts'
import { startRegistry } from '../src/registry.ts'
import { ensureBaseImages } from '../src/base-images.ts'
import { repositoryRoot, toolsDir } from '../src/config.ts'
let t=Date.now(); const lap=(n:string)=>{console.log(n, Date.now()-t); t=Date.now()}
const e = await startEngine({dir:join(toolsDir,'testbed'), log: console.log}); lap('up')
try {
await ensureBaseImages(e, undefined, console.log); lap('base')
const r = await startRegistry({dir:join(toolsDir,'testbed/registry'), address:e.gatewayIp, user:'berth', password:'pw'})
await e.docker(['login','-u','berth','--password-stdin', r.address],{input:'pw'});lap('registry')
for (const x of ['static-site','node-api','chat','express-api']) {
 const b=await e.docker(['buildx','build','--progress=plain','--push','-t',`${r.address}/${x}:1`,join(repositoryRoot,'examples',x)],{mayFail:true, deadlineMs:120000}); if(b.code) console.log(b.stderr.slice(-3000)); lap('build '+x)
 await e.docker(['run','-d','--name',x,'-p','0:8080','--memory','100m',`${r.address}/${x}:1`])
 const p=(await e.docker(['port',x,'8080'])).stdout.split('\n')[0]?.split(':').at(-1)
 const base=`http://${e.hostIp}:${p}`
 for(;;){ try{ const a=await fetch(base+'/'); console.log(a.status); break }catch{ await new Promise(r=>setTimeout(r,20)) } }
 lap('run '+x)
}
await r.stop()
} finally { t=Date.now(); await e.stop(); lap('stop') }
