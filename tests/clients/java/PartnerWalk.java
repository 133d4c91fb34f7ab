import com.fasterxml.jackson.databind.ObjectMapper;
import com.sforce.soap.partner.*;
import com.sforce.soap.partner.fault.*;
import com.sforce.soap.partner.sobject.SObject;
import com.sforce.ws.ConnectionException;
import com.sforce.ws.ConnectorConfig;
import com.sforce.ws.bind.XmlObject;
import java.util.*;

/**
 * The partner client by the platform's own makers, unmodified: signs in and walks through the calls. Prints one JSON
 * line for each step. Arguments: base URL, user name, password, mark, name of an external id field of Account.
 */
public class PartnerWalk {
    private static final ObjectMapper JSON = new ObjectMapper();

    interface Call {
        Object run() throws Exception;
    }

    static void step(String name, Object result) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", "step");
        line.put("step", name);
        line.put("result", result);
        System.out.println(JSON.writeValueAsString(line));
    }

    static void refused(String name, Call call) throws Exception {
        try {
            call.run();
            step(name, Map.of("fault", "none"));
        } catch (ApiQueryFault fault) {
            step(name, Map.of("fault", fault.getClass().getSimpleName(), "code", fault.getExceptionCode().toString(),
                "row", fault.getRow(), "column", fault.getColumn()));
        } catch (ApiFault fault) {
            step(name, Map.of("fault", fault.getClass().getSimpleName(), "code", fault.getExceptionCode().toString()));
        }
    }

    static SObject record(String type, String... pairs) {
        SObject made = new SObject(type);
        for (int i = 0; i < pairs.length; i += 2) made.setField(pairs[i], pairs[i + 1]);
        return made;
    }

    static List<Object> saved(SaveResult[] results) {
        List<Object> out = new ArrayList<>();
        for (SaveResult each : results)
            out.add(each.getSuccess() ? each.getId() : each.getErrors()[0].getStatusCode().toString());
        return out;
    }

    static ConnectorConfig config(String[] given) {
        ConnectorConfig config = new ConnectorConfig();
        config.setUsername(given[1]);
        config.setPassword(given[2]);
        config.setAuthEndpoint(given[0] + "/services/Soap/u/65.0");
        return config;
    }

    public static void main(String[] given) throws Exception {
        String mark = given[3];
        String key = given[4];
        ConnectorConfig config = config(given);
        PartnerConnection soap = new PartnerConnection(config);
        GetUserInfoResult user = soap.getUserInfo();
        step("login", Map.of("service", config.getServiceEndpoint(), "user", user.getUserName(),
            "org", user.getOrganizationId()));
        refused("wrong password", () -> {
            ConnectorConfig wrong = config(given);
            wrong.setPassword("wrong");
            return new PartnerConnection(wrong);
        });
        refused("wrong org", () -> {
            ConnectorConfig manual = config(given);
            manual.setManualLogin(true);
            manual.setServiceEndpoint(manual.getAuthEndpoint());
            PartnerConnection elsewhere = new PartnerConnection(manual);
            elsewhere.setLoginScopeHeader("00D000000000062EAA", null);
            return elsewhere.login(given[1], given[2]);
        });

        List<Object> made = saved(soap.create(new SObject[] {
            record("Account", "Name", mark + " one", "Phone", "1", "BillingCity", "Kiel", key, mark + "-1"),
            record("Account", "Name", mark + " two"), record("Account", "Phone", "3")}));
        step("create", made);
        String id = (String) made.get(0);
        SObject changed = record("Account", "Name", mark + " changed");
        changed.setId(id);
        changed.setFieldsToNull(new String[] {"Phone"});
        step("update", saved(soap.update(new SObject[] {changed})));
        List<Object> upserted = new ArrayList<>();
        for (UpsertResult each : soap.upsert(key, new SObject[] {
            record("Account", "Name", mark + " again", key, mark + "-1"),
            record("Account", "Name", mark + " three", key, mark + "-3")}))
            upserted.add(Map.of("id", each.getId(), "created", each.getCreated()));
        step("upsert", upserted);
        SObject contact = record("Contact", "LastName", mark);
        contact.setField("AccountId", id);
        step("contact", saved(soap.create(new SObject[] {contact})));

        QueryResult found = soap.query("SELECT Id, Name, Phone, BillingAddress, NumberOfEmployees, Owner.Name, "
            + "(SELECT LastName FROM Contacts) FROM Account WHERE Id = '" + id + "'");
        SObject row = found.getRecords()[0];
        XmlObject children = row.getChild("Contacts");
        step("query", Map.of("size", found.getSize(), "name", row.getField("Name"),
            "phone", String.valueOf(row.getField("Phone")),
            "city", row.getChild("BillingAddress").getField("city"),
            "owner", row.getChild("Owner").getField("Name"),
            "child", children.getChild("records").getField("LastName")));
        refused("malformed query", () -> soap.query("SELECT Id FORM Account"));
        refused("unknown field", () -> soap.query("SELECT Nope__c FROM Account"));
        refused("unknown type", () -> soap.describeSObject("Nope__c"));
        refused("malformed id", () -> soap.retrieve("Id", "Account", new String[] {"no"}));

        SObject[] many = new SObject[200];
        for (int i = 0; i < 200; i++) many[i] = record("Lead", "LastName", mark, "Company", mark + " " + i);
        saved(soap.create(many));
        saved(soap.create(many));
        soap.setQueryOptions(200);
        QueryResult page = soap.query("SELECT Id, Company FROM Lead WHERE LastName = '" + mark + "'");
        Set<String> ids = new HashSet<>();
        int pages = 1;
        for (SObject each : page.getRecords()) ids.add(each.getId());
        while (!page.isDone()) {
            page = soap.queryMore(page.getQueryLocator());
            for (SObject each : page.getRecords()) ids.add(each.getId());
            pages++;
        }
        step("pages", Map.of("pages", pages, "size", page.getSize(), "ids", ids.size()));

        DescribeSObjectResult described = soap.describeSObject("Account");
        Map<String, String> kinds = new TreeMap<>();
        for (Field each : described.getFields())
            kinds.put(each.getName(), each.getType() + " " + each.getSoapType());
        step("describe", Map.of("name", described.getName(), "label", described.getLabel(),
            "children", described.getChildRelationships().length, "fields", kinds));
        step("describe several", soap.describeSObjects(new String[] {"Contact", "Lead", "User"}).length);
        step("describe global", Arrays.stream(soap.describeGlobal().getSobjects()).map(o -> o.getName()).toList());
        DescribeLayoutResult layout = soap.describeLayout("Account", null, null);
        step("layout", layout.getLayouts()[0].getDetailLayoutSections()[0].getLayoutRows().length);
        DescribeCompactLayoutsResult compact = soap.describeCompactLayouts("Account", null);
        step("compact layouts", compact.getCompactLayouts()[0].getFieldItems()[0].getLabel());
        step("search layouts", soap.describeSearchLayouts(new String[] {"Account"})[0].getObjectType());
        step("approval layouts", soap.describeApprovalLayout("Account", null).getApprovalLayouts().length);
        step("theme", soap.describeTheme(new String[] {"Account"}).getThemeItems().length);
        step("menu", soap.describeAppMenu(AppMenuType.AppSwitcher, null).getAppMenuItems().length);
        step("tabs", soap.describeTabs()[0].getTabs().length == soap.describeAllTabs().length);

        MergeRequest merge = new MergeRequest();
        SObject master = new SObject("Account");
        master.setId(id);
        merge.setMasterRecord(master);
        merge.setRecordToMergeIds(new String[] {(String) made.get(1)});
        AdditionalInformationMap pair = new AdditionalInformationMap();
        pair.setName("reason");
        pair.setValue("walk");
        merge.setAdditionalInformationMap(new AdditionalInformationMap[] {pair});
        MergeResult merged = soap.merge(new MergeRequest[] {merge})[0];
        step("merge", List.of(merged.getSuccess(), merged.getMergedRecordIds()));
        LeadConvert lead = new LeadConvert();
        lead.setLeadId(ids.iterator().next());
        lead.setConvertedStatus("Closed - Converted");
        LeadConvertResult converted = soap.convertLead(new LeadConvert[] {lead})[0];
        step("convert", converted.getSuccess() ? "ok" : converted.getErrors()[0].getMessage());

        step("delete", soap.delete(new String[] {id})[0].getSuccess());
        step("undelete", soap.undelete(new String[] {id})[0].getSuccess());
        step("retrieve", soap.retrieve("Name", "Account", new String[] {id})[0].getField("Name"));
        step("search", soap.search("FIND {" + mark + "} IN NAME FIELDS RETURNING Contact(Id, LastName)")
            .getSearchRecords().length);
        Calendar end = soap.getServerTimestamp().getTimestamp();
        Calendar start = (Calendar) end.clone();
        start.add(Calendar.MINUTE, -5);
        step("updated", soap.getUpdated("Account", start, end).getLatestDateCovered() != null);
        SingleEmailMessage mail = new SingleEmailMessage();
        mail.setSubject("x");
        refused("email", () -> soap.sendEmail(new Email[] {mail}));
        refused("process", () -> soap.process(new ProcessRequest[] {new ProcessSubmitRequest()}));
        refused("duplicates", () -> soap.findDuplicates(new SObject[] {record("Account", "Name", mark)}));
        step("calls", soap.getLimitInfoHeader().getLimitInfo()[0].getType());
        soap.logout();
        refused("after logout", () -> soap.getUserInfo());
        step("end", true);
    }
}
