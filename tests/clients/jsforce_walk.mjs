// Walks jsforce through what its documentation promises, and prints one JSON line per step with what came back.
//
//   node jsforce_walk.mjs URL USERNAME PASSWORD CLIENT_ID CLIENT_SECRET MARK
//
// MARK is a word that no other record holds. The program checks nothing itself: the test that starts it does. An error ends it.
import process from "node:process";
import jsforce from "jsforce";

const [loginUrl, username, password, clientId, clientSecret, mark] = process.argv.slice(2);

function print(step, result) {
    process.stdout.write(JSON.stringify({kind: "step", step, result}) + "\n");
}

async function failure(promise) {
    try {
        await promise;
        return null;
    } catch (error) {
        return {code: error.errorCode ?? error.name, message: error.message};
    }
}

async function signIn() {
    const soap = new jsforce.Connection({loginUrl, version: "59.0"});
    const bySoap = await soap.loginBySoap(username, password);
    print("soap login", {userId: bySoap.id, orgId: bySoap.organizationId, instanceUrl: soap.instanceUrl});
    const oauth = new jsforce.Connection({
        version: "59.0",
        oauth2: {loginUrl, clientId, clientSecret, redirectUri: "http://localhost/callback"},
    });
    const byOauth = await oauth.loginByOAuth2(username, password);
    print("oauth login", {userId: byOauth.id, orgId: byOauth.organizationId});
    print("identity", await oauth.identity());
    print("wrong password", await failure(new jsforce.Connection({loginUrl}).login(username, "wrong")));
    const {instanceUrl, accessToken} = oauth; // which logging out makes it forget
    await oauth.logout();
    const stale = new jsforce.Connection({instanceUrl, accessToken, version: "59.0"});
    print("after logout", await failure(stale.query("SELECT Id FROM Account")));
    return soap;
}

async function keepRecords(conn) {
    const created = await conn.sobject("Account").create({Name: `${mark} one`, Phone: "1"});
    print("create", created);
    print("retrieve", await conn.sobject("Account").retrieve(created.id));
    print("update", await conn.sobject("Account").update({Id: created.id, Phone: "2"}));
    const many = [1, 2, 3].map((n) => ({Name: `${mark} many ${n}`}));
    const made = await conn.sobject("Account").create(many, {allOrNone: true});
    print("create many", made);
    print("refused together", await conn.sobject("Account").create([{Name: `${mark} x`}, {Phone: "no name"}], {allOrNone: true}));
    const contacts = [1, 2].map((n) => ({LastName: `${mark} ${n}`, AccountId: created.id}));
    await conn.sobject("Contact").create(contacts);
    print("children", await conn.query(
        `SELECT Name, (SELECT LastName FROM Contacts ORDER BY LastName) FROM Account WHERE Id = '${created.id}'`));
    print("parents", await conn.query(`SELECT LastName, Account.Name FROM Contact WHERE AccountId = '${created.id}' ORDER BY LastName`));
    print("find", await conn.sobject("Account").find({Name: {$like: `${mark} many%`}}, ["Id", "Name"]).sort({Name: -1}).limit(2));
    print("search", await conn.search(`FIND {${mark}} IN ALL FIELDS RETURNING Account(Id, Name WHERE Phone = '2')`));
    print("malformed", await failure(conn.query("SELECT Id FORM Account")));
    const account = made[0].id;
    print("delete", await conn.sobject("Account").delete(account));
    print("deleted", await failure(conn.sobject("Account").retrieve(account)));
    print("undelete", await conn.soap.undelete([account]));
    print("undeleted", (await conn.sobject("Account").retrieve(account)).Name);
    return [account, made[1].id];
}

async function joinRecords(conn, [master, loser]) {
    print("merge", await conn.soap.merge({
        masterRecord: {type: "Account", Id: master, Phone: "merged"}, recordToMergeIds: [loser],
    }));
    const lead = await conn.sobject("Lead").create({LastName: `${mark} Lead`, Company: `${mark} Company`});
    print("convert", await conn.soap.convertLead({leadId: lead.id, convertedStatus: "Closed - Converted", opportunityName: `${mark} deal`}));
    print("converted", await conn.query(
        `SELECT IsConverted, ConvertedAccount.Name, ConvertedOpportunity.Name FROM Lead WHERE Id = '${lead.id}'`));
    print("user info", await conn.soap.getUserInfo());
}

async function loadBulk(conn) {
    const rows = Array.from({length: 300}, (_, n) => ({Name: `${mark} bulk ${n}`}));
    conn.bulk2.pollInterval = 200;
    conn.bulk2.pollTimeout = 60_000;
    const loaded = await conn.bulk2.loadAndWaitForResults({object: "Account", operation: "insert", input: rows});
    print("bulk2", {good: loaded.successfulResults.length, bad: loaded.failedResults.length, left: loaded.unprocessedRecords.length});
    const stream = await conn.bulk2.query(`SELECT Id, Name FROM Account WHERE Name LIKE '${mark} bulk%'`);
    const found = await stream.toArray();
    print("bulk2 query", found.length);
    conn.bulk.pollInterval = 200;
    conn.bulk.pollTimeout = 60_000;
    const results = await conn.bulk.load("Account", "delete", found.map((row) => ({Id: row.Id})));
    print("bulk", results.filter((r) => r.success).length);
}

async function makeMetadata(conn) {
    const name = `${mark}_Invoice__c`;
    print("metadata create", await conn.metadata.create("CustomObject", {
        fullName: name, label: "Invoice Statement", pluralLabel: "Invoice Statements", deploymentStatus: "Deployed",
        sharingModel: "ReadWrite", nameField: {type: "AutoNumber", label: "Invoice Number", displayFormat: "INV-{0000}"},
        fields: [
            {fullName: "Description__c", label: "Description", type: "Text", length: 255},
            {fullName: "Status__c", label: "Status", type: "Picklist", valueSet: {restricted: true, valueSetDefinition: {
                sorted: false, value: ["Open", "Closed", "Negotiating", "Pending"].map((fullName) => (
                    {fullName, label: fullName, default: fullName === "Open"})),
            }}},
        ],
    }));
    print("metadata read", await conn.metadata.read("CustomObject", name));
    const record = await conn.sobject(name).create({Description__c: "first"});
    print("new object's record", await conn.sobject(name).retrieve(record.id));
    print("refused value", await failure(conn.sobject(name).create({Status__c: "Nonsense"})));
    print("tooling field", await conn.tooling.sobject("CustomField").create(
        {FullName: `${name}.Amount__c`, Metadata: {label: "Amount", type: "Currency", precision: 18, scale: 2}}));
    print("described", (await conn.sobject(name).describe()).fields.map((field) => field.name));
    print("metadata delete", await conn.metadata.delete("CustomObject", name));
    print("described after", await failure(conn.sobject(name).describe()));
}

const conn = await signIn();
const kept = await keepRecords(conn);
await joinRecords(conn, kept);
await loadBulk(conn);
await makeMetadata(conn);
print("end", true);
